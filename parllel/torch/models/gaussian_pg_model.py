"""Policy and value for continuous actions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parllel.torch.distributions.distribution import shape_of
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.torch.models.mlp_model import MlpModel
from parllel.torch.models.pg_output import PgOutput


class GaussianPgModel(nn.Module):
    """Two separate trunks: the mean action, and the value; `log_std` does not depend on the state.

    Heads are orthogonal with gain `policy_gain` and 1 (value), after Andrychowicz et al. 2021.

    Args:
        observation_shape: of one observation.
        action_shape: of one action.
        hidden_sizes: units of each hidden layer, of both trunks.
        initial_log_std: of every dimension; 0 is a standard deviation of 1.
        seed: for the initial weights.
        policy_gain: with 0 an untrained policy is the same in all states.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        hidden_sizes: Sequence[int],
        initial_log_std: float,
        seed: int,
        *,
        policy_gain: float = 0.01,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        n_inputs = math.prod(shape_of(observation_shape, "observation_shape"))
        self.action_shape = shape_of(action_shape, "action_shape")
        self.policy = MlpModel(
            n_inputs,
            hidden_sizes,
            math.prod(self.action_shape),
            output_gain=policy_gain,
            generator=generator,
        )
        self.critic = MlpModel(n_inputs, hidden_sizes, 1, output_gain=1.0, generator=generator)
        # A parameter and no output, after Schulman et al. 2017, in logarithm so that any value is a valid
        # one.
        self.log_std = nn.Parameter(torch.full(self.action_shape, float(initial_log_std)))

    def forward(self, observation: Tensor) -> PgOutput:
        """Return mean `[N, *action_shape]` with log_std `[*action_shape]`, and values [N]."""
        # `unflatten` takes no empty shape.
        mean = self.policy(observation).unflatten(-1, self.action_shape or (1,))
        if not self.action_shape:
            mean = mean.squeeze(-1)
        params = GaussianParams(mean, self.log_std)
        return PgOutput(params, self.critic(observation).squeeze(-1))
