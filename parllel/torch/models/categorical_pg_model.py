"""Policy and value for discrete actions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parllel.torch.distributions.distribution import shape_of
from parllel.torch.models.mlp_model import MlpModel
from parllel.torch.models.pg_output import PgOutput


class CategoricalPgModel(nn.Module):
    """Two separate trunks: logits of the actions, and the value.

    Heads are orthogonal with gain `policy_gain` and 1 (value), after Andrychowicz et al. 2021.

    Args:
        observation_shape: of one observation.
        n_actions: number of logits; for `MultiDiscrete` the sum of `nvec`.
        hidden_sizes: units of each hidden layer, of both trunks.
        seed: for the initial weights.
        policy_gain: with 0 an untrained policy is the same in all states.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        n_actions: int,
        hidden_sizes: Sequence[int],
        seed: int,
        *,
        policy_gain: float = 0.01,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        # Nothing is shared (Schulman et al. 2017, section 6.1): no gradient of the value reaches the policy.
        n_inputs = math.prod(shape_of(observation_shape, "observation_shape"))
        self.policy = MlpModel(
            n_inputs, hidden_sizes, n_actions, output_gain=policy_gain, generator=generator
        )
        self.critic = MlpModel(n_inputs, hidden_sizes, 1, output_gain=1.0, generator=generator)

    def forward(self, observation: Tensor) -> PgOutput:
        """Return logits [N, n_actions] and values [N] of observations [N, ...]."""
        # Values [N, 1] would broadcast against returns [N] to [N, N] in the loss.
        return PgOutput(self.policy(observation), self.critic(observation).squeeze(-1))
