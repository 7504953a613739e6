"""Policies and values with a memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.buffers.named_tuple import NamedTuple
from parllel.torch.distributions.distribution import shape_of
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.torch.models.orthogonal import orthogonal_layer
from parllel.torch.models.pg_output import PgOutput
from parllel.torch.models.recurrent_trunk import Cell, RecurrentTrunk
from parllel.types import Tree


class CategoricalRecurrentPgModel(nn.Module):
    """Logits of discrete actions and the value, from one memory.

    Heads are orthogonal with gain 0.01 (policy) and 1 (value), after Andrychowicz et al. 2021.

    Args:
        observation_shape: of one observation.
        n_actions: number of logits.
        hidden_sizes, rnn_size, cell: see `RecurrentTrunk`.
        prev_action: whether the memory is given the previous action too, as a one-hot vector; for a single
            choice only.
        seed: for the initial weights.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        n_actions: int,
        hidden_sizes: Sequence[int],
        rnn_size: int,
        *,
        cell: Cell,
        prev_action: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.n_actions = n_actions
        self.trunk = RecurrentTrunk(
            math.prod(shape_of(observation_shape, "observation_shape")),
            hidden_sizes,
            rnn_size,
            cell,
            n_actions if prev_action else 0,
            generator,
        )
        self.policy = orthogonal_layer(
            nn.Linear, rnn_size, n_actions, gain=0.01, generator=generator
        )
        self.critic = orthogonal_layer(nn.Linear, rnn_size, 1, gain=1.0, generator=generator)

    def initial_state(self, N: int) -> NamedTuple:
        """Return the state at the start of an episode, leaves [N, rnn_size]."""
        return self.trunk.initial_state(N)

    def forward(
        self, observation: Tensor, rnn_state: Tree, prev_action: Tensor | None = None
    ) -> tuple[PgOutput, NamedTuple]:
        """Return logits [T, N, n_actions] and values [T, N], and the state after the last row.

        observation: [T, N, ...].  rnn_state: leaves [N, rnn_size].  prev_action: integers [T, N].
        """
        if prev_action is not None:
            if prev_action.dim() != 2:
                raise ValueError(
                    f"prev_action: expected single choices [T, N], got {list(prev_action.shape)}; "
                    "several choices at once need a model of their own"
                )
            # `one_hot` takes int64 alone; the batch may hold narrower integers.
            prev_action = functional.one_hot(prev_action.long(), self.n_actions)
        features, state = self.trunk(observation, rnn_state, prev_action)
        return PgOutput(self.policy(features), self.critic(features).squeeze(-1)), state


class GaussianRecurrentPgModel(nn.Module):
    """Mean of continuous actions and the value, from one memory; `log_std` does not depend on the state.

    Args:
        observation_shape: of one observation.
        action_shape: of one action.
        hidden_sizes, rnn_size, cell: see `RecurrentTrunk`.
        initial_log_std: of every dimension; 0 is a standard deviation of 1.
        prev_action: whether the memory is given the previous action too.
        seed: for the initial weights.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        hidden_sizes: Sequence[int],
        rnn_size: int,
        *,
        cell: Cell,
        initial_log_std: float,
        prev_action: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.action_shape = shape_of(action_shape, "action_shape")
        size = math.prod(self.action_shape)
        self.trunk = RecurrentTrunk(
            math.prod(shape_of(observation_shape, "observation_shape")),
            hidden_sizes,
            rnn_size,
            cell,
            size if prev_action else 0,
            generator,
        )
        self.policy = orthogonal_layer(nn.Linear, rnn_size, size, gain=0.01, generator=generator)
        self.critic = orthogonal_layer(nn.Linear, rnn_size, 1, gain=1.0, generator=generator)
        self.log_std = nn.Parameter(torch.full(self.action_shape, float(initial_log_std)))

    def initial_state(self, N: int) -> NamedTuple:
        """Return the state at the start of an episode, leaves [N, rnn_size]."""
        return self.trunk.initial_state(N)

    def forward(
        self, observation: Tensor, rnn_state: Tree, prev_action: Tensor | None = None
    ) -> tuple[PgOutput, NamedTuple]:
        """Return mean `[T, N, *action_shape]` with log_std, values [T, N], and the state after the last.

        observation: [T, N, ...].  rnn_state: leaves [N, rnn_size].
        prev_action: `[T, N, *action_shape]`.
        """
        if prev_action is not None:
            # Beside the features there is one dimension for the numbers of an action.
            prev_action = prev_action.reshape(*prev_action.shape[:2], -1)
        features, state = self.trunk(observation, rnn_state, prev_action)
        mean = self.policy(features).reshape(*features.shape[:2], *self.action_shape)
        params = GaussianParams(mean, self.log_std)
        return PgOutput(params, self.critic(features).squeeze(-1)), state
