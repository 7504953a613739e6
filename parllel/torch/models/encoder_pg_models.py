"""Policies and values that look through the same encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parllel.torch.distributions.distribution import shape_of
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.torch.models.mlp_model import MlpModel
from parllel.torch.models.pg_output import PgOutput
from parllel.types import Tree


class CategoricalEncoderPgModel(nn.Module):
    """Logits of discrete actions and the value, from the features of one encoder.

    Heads are orthogonal with gain `policy_gain` and 1 (value), after Andrychowicz et al. 2021.

    Args:
        encoder: maps observations to features [N, encoder.n_features]: a `CnnEncoder`, `TreeEncoder`, or
            your own module.
        hidden_sizes: units of the layers between features and outputs, which policy and value do not share;
            may be empty.
        n_actions: number of logits; for `MultiDiscrete` the sum of `nvec`.
        policy_gain: with 0 an untrained policy is the same in all states.
        generator: draws the weights of the layers after the encoder.
    """

    def __init__(
        self,
        encoder: nn.Module,
        hidden_sizes: Sequence[int],
        n_actions: int,
        *,
        policy_gain: float = 0.01,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.policy, self.critic = _heads(encoder, hidden_sizes, n_actions, policy_gain, generator)

    def forward(self, observation: Tree) -> PgOutput:
        """Return logits [N, n_actions] and values [N] of observations [N, ...]."""
        # Once for both heads: with images the encoder takes nearly all of the time.
        features = self.encoder(observation)
        return PgOutput(self.policy(features), self.critic(features).squeeze(-1))


class GaussianEncoderPgModel(nn.Module):
    """Mean of continuous actions and the value, from the features of one encoder.

    Args:
        encoder, hidden_sizes, policy_gain, generator: see `CategoricalEncoderPgModel`.
        action_shape: of one action.
        initial_log_std: of every dimension, whatever the state; 0 is a standard deviation of 1.
    """

    def __init__(
        self,
        encoder: nn.Module,
        hidden_sizes: Sequence[int],
        action_shape: int | Sequence[int],
        initial_log_std: float,
        *,
        policy_gain: float = 0.01,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.action_shape = shape_of(action_shape, "action_shape")
        n_means = math.prod(self.action_shape)
        self.policy, self.critic = _heads(encoder, hidden_sizes, n_means, policy_gain, generator)
        self.log_std = nn.Parameter(torch.full(self.action_shape, float(initial_log_std)))

    def forward(self, observation: Tree) -> PgOutput:
        """Return mean `[N, *action_shape]` with log_std `[*action_shape]`, and values [N]."""
        features = self.encoder(observation)
        # For actions without dimensions this drops the last one, as values [N] have to be.
        mean: Tensor = self.policy(features).reshape(len(features), *self.action_shape)
        params = GaussianParams(mean, self.log_std)
        return PgOutput(params, self.critic(features).squeeze(-1))


def _heads(
    encoder: nn.Module,
    hidden_sizes: Sequence[int],
    n_outputs: int,
    policy_gain: float,
    generator: torch.Generator,
) -> tuple[MlpModel, MlpModel]:
    # The only thing that is asked of an encoder, so that modules of users fit too.
    n_features = int(encoder.n_features)  # type: ignore[arg-type]
    return (
        MlpModel(n_features, hidden_sizes, n_outputs, output_gain=policy_gain, generator=generator),
        MlpModel(n_features, hidden_sizes, 1, output_gain=1.0, generator=generator),
    )
