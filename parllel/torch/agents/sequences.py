"""Sequences with resets, computed by recurrent models that know none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.types import Tree


class Segments(NamedTuple):
    """Columns [T, N] cut at their resets: S segments without resets, of at most L rows, from row 0 on.

    Attributes:
        taken: int64 [L, S], which of the T * N cells each cell is; a filler where a segment has ended.
        column: int64 [S], the column of each segment.
        anew: bool [S], whether it starts with the state at the start of an episode.
        back: int64 [T, N], which of the L * S cells each cell became.
    """

    taken: NDArray[np.int64]
    column: NDArray[np.int64]
    anew: NDArray[np.bool_]
    back: NDArray[np.int64]


def segments(reset: NDArray[np.bool_]) -> Segments:
    """Cut columns at their resets.

    reset: bool [T, N], where the state before a row is that at the start of an episode.
    """
    T, N = reset.shape
    begins = reset.copy()
    begins[0] = True
    # Column by column, so that the rows of a segment are consecutive.
    first = np.flatnonzero(begins.T)
    lengths = np.diff(first, append=T * N)
    number = np.repeat(np.arange(len(first)), lengths)
    place = np.arange(T * N) - np.repeat(first, lengths)
    L, S = int(lengths.max()), len(first)
    cell = np.arange(T * N).reshape(T, N).T.reshape(-1)
    taken = np.zeros((L, S), np.int64)
    taken[place, number] = cell
    back = np.empty(T * N, np.int64)
    back[cell] = place * S + number
    return Segments(taken, first // T, reset.T.reshape(-1)[first], back.reshape(T, N))


def cleared(model: Any, rnn_state: Tree, which: NDArray[np.bool_]) -> Tree:
    """Return a state, leaves [N, ...], with that at the start of an episode where `which` [N] is True."""
    if not which.any():
        return rnn_state
    first = model.initial_state(1)

    def clear(leaf: Tensor, initial: Tensor) -> Tensor:
        mask = torch.from_numpy(which).to(leaf.device)
        return torch.where(mask.reshape(-1, *[1] * (leaf.dim() - 1)), initial, leaf)

    return buffer_map(clear, rnn_state, first)


def values_of_sequences(
    model: Any,
    observation: Tree,
    rnn_state: Tree,
    reset: NDArray[np.bool_],
    inputs: dict[str, Tree],
) -> Tensor:
    """Return a recurrent model's values [T, N, ...] of sequences with resets, from one call of the model.

    Each reset begins a column of its own, since a recurrent layer cannot clear its state between two rows.

    observation, inputs: leaves [T, N, ...].  rnn_state: before row 0, leaves [N, ...].  reset: bool [T, N],
    where the state before a row is that at the start of an episode.
    """
    values: Tensor
    if not reset[1:].any():
        values, _ = model(observation, cleared(model, rnn_state, reset[0]), **inputs)
        return values
    cut = segments(reset)
    _, leaf = next(buffer_leaves(rnn_state))

    def index(numbers: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(numbers.reshape(-1)).to(leaf.device)

    taken, column, shape = index(cut.taken), index(cut.column), cut.taken.shape

    def take(leaf: Tensor) -> Tensor:
        chosen: Tensor = leaf.flatten(0, 1).index_select(0, taken)
        return chosen.reshape(*shape, *leaf.shape[2:])

    state = buffer_map(lambda leaf: leaf.index_select(0, column), rnn_state)
    parts = buffer_map(take, {"observation": observation, **inputs})
    values, _ = model(parts.pop("observation"), cleared(model, state, cut.anew), **parts)
    chosen: Tensor = values.flatten(0, 1).index_select(0, index(cut.back))
    return chosen.reshape(*reset.shape, *values.shape[2:])


def state_after(
    model: Any,
    observation: Tree,
    rnn_state: Tree,
    reset: NDArray[np.bool_],
    inputs: dict[str, Tree],
) -> Tree:
    """Return a recurrent model's state after sequences, leaves [N, ...]; arguments as above."""
    T, begin = len(reset), 0
    # Between the rows at which any state is cleared: the end of a segment is not where others end.
    for stop in [*np.flatnonzero(reset.any(axis=1)).tolist(), T]:
        if stop > begin:
            rows = slice(begin, stop)
            parts = buffer_map(
                lambda leaf, rows=rows: leaf[rows], {"observation": observation, **inputs}
            )
            _, rnn_state = model(parts.pop("observation"), rnn_state, **parts)
        if stop < T:
            rnn_state = cleared(model, rnn_state, reset[stop])
        begin = stop
    return rnn_state
