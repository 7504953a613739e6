"""Cached views of a field's rows in the agent's framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from numpy.typing import NDArray

from parllel.arrays.batch_views import BatchViews
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.batches import PerBatch, batch_number, count_batches, max_kept
from parllel.buffers.tree import buffer_arrays, buffer_leaves, named_map
from parllel.types import Tree

MAX_VIEWS = 2**14  # cached per field over all batches; a tensor takes about 500 bytes
Convert: TypeAlias = Callable[[NDArray[Any]], Any]


class RowViews:
    """Creates and caches views of every row of a field, for each requested slice of columns.

    The first call with a slice creates its views, one per row of the body and of the end padding; later
    calls look them up by `(start, stop)`. Views share memory with the field. If a field moves to other
    memory, create a new object. All rows of a `LazyFramesArray` share one view, of the latest stacks.

    Rows are those of the field's current batch, until `use_batch` selects another.

    Args:
        field: a tree with leaves of type Array, `[T, B, ...]`.
        convert: turns the numpy view of a row of one leaf into a view of another framework.
    """

    def __init__(self, field: Tree, convert: Convert) -> None:
        self._field = field
        self._convert = convert
        self._bound: dict[tuple[Any, Any], Tree] = {}
        # The shortest leaf limits the rows of a tree.
        self._n_rows = min(leaf.last + 1 + leaf.padding for _, leaf in buffer_leaves(field))
        arrays = buffer_arrays(field)
        most = max_kept(MAX_VIEWS, self._n_rows * len(arrays), count_batches(arrays))
        self._by_batch: PerBatch[dict[tuple[Any, Any], list[Tree]]] = PerBatch(lambda _: {}, most)
        self._number = batch_number(arrays)
        self._rows = self._by_batch.at(self._number)

    def use_batch(self, number: int) -> None:
        """Switch to another batch of a field that holds several."""
        # Called with every row: drop views only when the batch changes.
        if number != self._number:
            self._number = number
            self._rows = self._by_batch.at(number)

    def rows(self, columns: slice) -> list[Tree]:
        """Return views of `columns` for all rows; entry T is the first row of end padding.

        Raises:
            ValueError: if the slice has a step.
        """
        rows = self._rows.get((columns.start, columns.stop))
        if rows is None:
            rows = self._views(columns)
            self._rows[columns.start, columns.stop] = rows
        return rows

    def _views(self, columns: slice) -> list[Tree]:
        key = columns.start, columns.stop
        if key not in self._bound:
            if columns.step not in (None, 1):
                raise ValueError(f"columns: expected a slice without a step, got {columns}")
            self._bound[key] = named_map(lambda leaf: _bind(leaf, columns), self._field)
        bound = self._bound[key]
        # Fast path for a single array, without building a tree for each row.
        if not hasattr(bound, "_fields"):
            return self._split(bound)
        leaves = [self._split(leaf) for _, leaf in buffer_leaves(bound)]
        return [_filled(bound, iter(row)) for row in zip(*leaves, strict=True)]

    def _split(self, bound: BatchViews | NDArray[Any]) -> list[Any]:
        if isinstance(bound, BatchViews):
            return [self._convert(row) for row in bound.rows(self._number, self._n_rows)]
        # One object for all rows, because the stacks of each row are written to the same memory.
        return [self._convert(bound)] * self._n_rows


def _bind(leaf: Any, columns: slice) -> BatchViews | NDArray[Any]:
    # Stacks stored frame by frame are not in memory, except for the latest ones.
    if isinstance(leaf, LazyFramesArray):
        return leaf.staged(columns)
    return BatchViews(leaf, columns)


def _filled(tree: Tree, leaves: Iterator[Any]) -> Tree:
    """Return a tree of the same structure with new leaves, in order."""
    return named_map(lambda _: next(leaves), tree)
