"""Recurrent policy and value model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from parllel.algos.arguments import shape_of
from parllel.buffers.named_tuple import NamedTuple
from parllel.torch.models.heads import Head
from parllel.torch.models.initial_weights import orthogonal_, orthogonal_layer
from parllel.torch.models.mlp_model import HIDDEN_GAIN, MlpModel, tanh_
from parllel.torch.models.pg_model import PgOutput
from parllel.types import Tree

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}
Cell = Literal["lstm", "gru"]


class RecurrentTrunk(nn.Module):
    """Fully connected layers with tanh, then one LSTM or GRU layer (Hochreiter 1997; Cho et al. 2014).

    Weights are orthogonal, with gain sqrt(2) in the layers and 1 in each gate; biases are zero.

    Args:
        n_inputs: number of elements in one observation.
        hidden_sizes: number of units in each layer before the memory; may be empty.
        rnn_size: number of units in the memory.
        cell: "lstm", whose state is `hidden` and `cell`, or "gru", with only `hidden`; each [N, rnn_size].
        n_actions: size of the encoded previous action, which bypasses the layers; 0 for none.
        generator: generator that draws the weights.

    Raises:
        ValueError: if a size is less than one, or for an unknown cell.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden_sizes: Sequence[int],
        rnn_size: int,
        cell: Cell,
        n_actions: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        # Checked here, because the KeyError of `CELLS[cell]` would not list the choices.
        if cell not in CELLS:
            raise ValueError(f"cell: expected one of {sorted(CELLS)}, got {cell!r}")
        if rnn_size < 1:
            raise ValueError(f"rnn_size: expected at least 1, got {rnn_size}")
        self.cell, self.rnn_size, self.n_actions = cell, rnn_size, n_actions
        # The last of these layers is MlpModel's output layer, so it needs the gain of a hidden layer.
        self.layers: MlpModel | None = None
        n_features = n_inputs
        if hidden_sizes:
            *hidden, n_features = hidden_sizes
            self.layers = MlpModel(
                n_inputs, hidden, n_features, output_gain=HIDDEN_GAIN, generator=generator
            )
        # See `orthogonal_layer`.
        with torch.random.fork_rng(devices=()):
            self.rnn: Any = CELLS[cell](n_features + n_actions, rnn_size)
        for name, parameter in self.rnn.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            else:
                # One matrix holds the weights of all gates, which must be orthogonal each, not as a whole.
                for gate in parameter.data.split(rnn_size):
                    orthogonal_(gate, generator=generator)

    def initial_state(self, N: int) -> NamedTuple:
        """Return the state at the start of an episode, zeros [N, rnn_size]."""
        # In the order in which torch's LSTM takes and returns them.
        names = ("hidden", "cell") if self.cell == "lstm" else ("hidden",)
        like = self.rnn.weight_hh_l0
        return NamedTuple(**{name: like.new_zeros(N, self.rnn_size) for name in names})

    def forward(
        self, observation: Tensor, rnn_state: Tree, prev_action: Tensor | None = None
    ) -> tuple[Tensor, NamedTuple]:
        """Return features [T, N, rnn_size], and the state after the last row.

        observation: [T, N, ...].  rnn_state: before the first row, leaves [N, rnn_size].
        prev_action: numbers [T, N, n_actions].
        """
        T, N = observation.shape[:2]
        x = observation.reshape(T * N, -1)
        weight = self.rnn.weight_hh_l0
        x = tanh_(self.layers(x)) if self.layers is not None else x.to(weight.dtype)
        x = x.reshape(T, N, -1)
        if self.n_actions:
            if prev_action is None:
                raise ValueError(
                    "prev_action: expected the previous actions, got None. Pass an example "
                    "action as prev_action to the agent"
                )
            # Cast first: `cat` would promote to the wider float type, which the recurrent layer rejects.
            x = torch.cat((x, prev_action.to(x.dtype)), dim=-1)
        # cuDNN rejects non-contiguous states, and columns of a batch may be non-contiguous.
        before = [leaf.unsqueeze(0).contiguous() for leaf in rnn_state]
        features, after = self.rnn(x, tuple(before) if self.cell == "lstm" else before[0])
        leaves = after if self.cell == "lstm" else (after,)
        state = {name: leaf[0] for name, leaf in zip(rnn_state._fields, leaves, strict=True)}
        return features, NamedTuple(**state)


class RecurrentPgModel(nn.Module):
    """Policy and value on top of one recurrent trunk.

    The last layers are orthogonal with gain 0.01 (policy) and 1 (value), after Andrychowicz et al. 2021.

    Args:
        observation_shape: shape of one observation; an int n means (n,).
        head: maps the outputs of the policy layer to parameters, see `PgModel`.
        hidden_sizes, rnn_size, cell: see `RecurrentTrunk`.
        prev_action: whether the recurrent layer also receives the previous action. A single choice is one-hot
            encoded; several choices need a custom head.
        seed: seed of the initial weights.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        head: Head,
        hidden_sizes: Sequence[int],
        rnn_size: int,
        *,
        cell: Cell,
        prev_action: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.head = head
        self.trunk = RecurrentTrunk(
            math.prod(shape_of(observation_shape, "observation_shape")),
            hidden_sizes,
            rnn_size,
            cell,
            head.n_inputs if prev_action else 0,
            generator,
        )
        self.policy = orthogonal_layer(
            nn.Linear, rnn_size, head.n_outputs, gain=0.01, generator=generator
        )
        self.critic = orthogonal_layer(nn.Linear, rnn_size, 1, gain=1.0, generator=generator)

    def initial_state(self, N: int) -> NamedTuple:
        """Return the state at the start of an episode, leaves [N, rnn_size]."""
        return self.trunk.initial_state(N)

    def forward(
        self, observation: Tensor, rnn_state: Tree, prev_action: Tensor | None = None
    ) -> tuple[PgOutput, NamedTuple]:
        """Return parameters [T, N, ...] and values [T, N], and the state after the last row.

        observation: [T, N, ...].  rnn_state: leaves [N, rnn_size].  prev_action: [T, N, ...].
        """
        # Features have a last dimension, so scalar actions need one too.
        numbers = None if prev_action is None else self.head.inputs_of(prev_action)
        features, state = self.trunk(observation, rnn_state, numbers)
        params = self.head.params(self.policy(features))
        return PgOutput(params, self.critic(features).squeeze(-1)), state
