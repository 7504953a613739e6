"""Copies drawn cells of a field into arrays that are used again, with one compiled call per leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.tree import buffer_leaves, named_map
from parllel.replays.cell_words import as_words
from parllel.replays.last_observations import LastObservations
from parllel.types import Tree


class CellGather:
    """Gathers cells of a tree of arrays without frame stacks, such as the action.

    Args:
        field: tree, leaves [T, B, ...] with several batches.
        n: number of cells to draw.

    Attributes:
        out: tree, leaves [n, ...].
    """

    def __init__(self, field: Tree, n: int) -> None:
        from parllel.replays import compiled  # imports numba

        self._gather = compiled.gather
        self.out, outs = _outputs(field, n)
        self._leaves = [
            (as_words(leaf.block.public(), 2), leaf.block.padding, as_words(out, 1))
            for (_, leaf), out in zip(buffer_leaves(field), outs, strict=True)
        ]

    def __call__(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        """Copy the cells of these rows, counted over all batches, and columns, [n] each."""
        for memory, padding, out in self._leaves:
            self._gather(memory, padding, rows, columns, out)


class PlaceGather:
    """Gathers observations that are in rows of the memory, or in the table of last observations.

    Args:
        field: tree of observations, leaves [T, B, ...] with several batches.
        last: the true last observations.
        n: number of places.

    Attributes:
        out: tree, leaves [n, ...].
    """

    def __init__(self, field: Tree, last: LastObservations, n: int) -> None:
        from parllel.replays import compiled  # imports numba

        self._compiled = compiled
        self._last = last
        self.out, outs = _outputs(field, n)
        self._leaves: list[tuple[Any, ...]] = []
        for (_, leaf), out in zip(buffer_leaves(field), outs, strict=True):
            stacks = isinstance(leaf, LazyFramesArray)
            memory = None if stacks else as_words(leaf.block.public(), 2)
            self._leaves.append((leaf.block, memory, out, as_words(out, 1)))

    def __call__(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64], slots: NDArray[np.int32]
    ) -> None:
        """Copy the cells of these rows (0 to R, as in `ObservationGather`) and columns, [n] each.

        slots: [n], slots in the table to copy instead where they are not -1.
        """
        for (block, memory, out, words), table in zip(self._leaves, self._last.words, strict=True):
            if memory is None:
                block.gather(rows + block.padding, columns, out)
            else:
                self._compiled.gather(memory, block.padding, rows, columns, words)
            self._compiled.gather_slots(slots, table, words)


class ObservationGather:
    """Gathers observations, and those that follow them.

    Args:
        field: tree of observations, leaves [T, B, ...] with several batches.
        last: the true last observations.
        n: number of cells to draw.

    Attributes:
        out, out_next: trees, leaves [n, ...].
    """

    def __init__(self, field: Tree, last: LastObservations, n: int) -> None:
        from parllel.replays import compiled  # imports numba

        self._compiled = compiled
        self._last = last
        self.out, outs = _outputs(field, n)
        self.out_next, nexts = _outputs(field, n)
        self._leaves: list[tuple[Any, ...]] = []
        for (_, leaf), out, out_next in zip(buffer_leaves(field), outs, nexts, strict=True):
            block = leaf.block
            stacks = isinstance(leaf, LazyFramesArray)
            # Stacks are rebuilt by the array itself, as single frames are what is in memory.
            memory = None if stacks else as_words(block.public(), 2)
            words = as_words(out, 1), as_words(out_next, 1)
            self._leaves.append((block, memory, block.padding, out, out_next, *words))

    def __call__(
        self,
        rows: NDArray[np.int64],
        next_rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        slots: NDArray[np.int32],
    ) -> None:
        """Copy the cells of these rows and columns, [n] each, and what follows them.

        next_rows: 1 to R, where row R is the padding row after the last.  slots: see `add_up_steps`.
        """
        for leaf, table in zip(self._leaves, self._last.words, strict=True):
            block, memory, padding, out, out_next, words, next_words = leaf
            if memory is not None:
                self._compiled.gather_pairs(
                    memory, padding, rows, next_rows, columns, slots, table, words, next_words
                )
                continue
            block.gather(rows + padding, columns, out)
            block.gather(next_rows + padding, columns, out_next)
            self._compiled.gather_slots(slots, table, next_words)


def _outputs(field: Tree, n: int) -> tuple[Tree, list[NDArray[Any]]]:
    """Return a tree of arrays for `n` cells of a field, and its leaves in order."""

    def output(leaf: Array) -> NDArray[Any]:
        return np.zeros((n, *leaf.shape[2:]), leaf.dtype)

    tree = named_map(output, field)
    return tree, [leaf for _, leaf in buffer_leaves(tree)]
