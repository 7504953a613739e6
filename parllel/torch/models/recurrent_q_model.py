"""Recurrent model of action values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from parllel.algos.arguments import shape_of
from parllel.buffers.named_tuple import NamedTuple
from parllel.torch.models.mlp_model import MlpModel
from parllel.torch.models.recurrent_pg_model import Cell, RecurrentTrunk
from parllel.types import Tree


class RecurrentQModel(torch.nn.Module):
    """Action values of discrete actions on top of a recurrent trunk, optionally with duelling networks.

    Args:
        observation_shape: shape of one observation; an int n means (n,).
        n_actions: number of actions.
        hidden_sizes, rnn_size, cell: see `RecurrentPgModel`.
        head_sizes: units of the hidden layers after the recurrent layer, with ReLU; may be empty.
        dueling: whether to use two networks after the recurrent layer, see `QModel`.
        prev_action: whether the recurrent layer also receives the previous action, one-hot encoded.
        seed: seed of the initial weights.

    Raises:
        ValueError: if a size is less than one, or for an unknown cell.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        n_actions: int,
        hidden_sizes: Sequence[int],
        rnn_size: int,
        *,
        cell: Cell,
        head_sizes: Sequence[int] = (),
        dueling: bool = False,
        prev_action: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.n_actions = int(n_actions)
        self.trunk = RecurrentTrunk(
            math.prod(shape_of(observation_shape, "observation_shape")),
            hidden_sizes,
            rnn_size,
            cell,
            self.n_actions if prev_action else 0,
            generator,
        )

        def network(n_outputs: int) -> MlpModel:
            return MlpModel(
                rnn_size,
                head_sizes,
                n_outputs,
                output_gain=None,
                generator=generator,
                activation="relu",
            )

        self.actions = network(self.n_actions)
        self.state_value: MlpModel | None = network(1) if dueling else None

    def initial_state(self, N: int) -> NamedTuple:
        """Return the state at the start of an episode, leaves [N, rnn_size]."""
        return self.trunk.initial_state(N)

    def forward(
        self, observation: Tensor, rnn_state: Tree, prev_action: Tensor | None = None
    ) -> tuple[Tensor, NamedTuple]:
        """Return values [T, N, n_actions], and the state after the last row.

        observation: [T, N, ...].  rnn_state: leaves [N, rnn_size].  prev_action: integers [T, N].
        """
        T, N = observation.shape[:2]
        numbers = None
        if prev_action is not None and self.trunk.n_actions:
            numbers = functional.one_hot(prev_action.long(), self.n_actions)
        features, state = self.trunk(observation, rnn_state, numbers)
        features = features.flatten(0, 1)
        values: Tensor = self.actions(features)
        if self.state_value is not None:
            values = self.state_value(features) + values - values.mean(dim=-1, keepdim=True)
        return values.reshape(T, N, self.n_actions), state
