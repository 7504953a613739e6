"""Views of the rows of a field, in the framework of the agent, made once and then only looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from numpy.typing import NDArray

from parllel.arrays.batch_views import BatchViews
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.batches import PerBatch, batch_number, count_batches, max_kept
from parllel.buffers.tree import buffer_arrays, buffer_leaves, named_map
from parllel.types import Tree

MAX_VIEWS = 2**14  # kept of one field for all its batches; a tensor takes about 500 bytes
Convert: TypeAlias = Callable[[NDArray[Any]], Any]


class RowViews:
    """Hold a view of every row of a field, for each slice of columns that is asked for.

    The first call with a slice makes its views, `T` of them and one per row of end padding; later
    calls look them up by `(start, stop)`. Views share memory with the field: what is written
    to one is seen in the other. When a field gets other memory, make a new object.
    All rows of a `LazyFramesArray` are one and the same view: of the stacks that were written last.

    Rows are those of one batch: that which the field shows, until `use_batch`.

    Args:
        field: a tree with leaves of type Array, `[T, B, ...]`.
        convert: turns the numpy view of a row of one leaf into a view of another framework.
    """

    def __init__(self, field: Tree, convert: Convert) -> None:
        self._field = field
        self._convert = convert
        self._bound: dict[tuple[Any, Any], Tree] = {}
        # A tree can be read no further than its shortest leaf.
        self._n_rows = min(leaf.last + 1 + leaf.padding for _, leaf in buffer_leaves(field))
        arrays = buffer_arrays(field)
        most = max_kept(MAX_VIEWS, self._n_rows * len(arrays), count_batches(arrays))
        self._by_batch: PerBatch[dict[tuple[Any, Any], list[Tree]]] = PerBatch(lambda _: {}, most)
        self._number = batch_number(arrays)
        self._rows = self._by_batch.at(self._number)

    def use_batch(self, number: int) -> None:
        """Go over to a batch of a field that holds several."""
        # Asked for again with every row: views that are not kept for all batches are those of this one.
        if number != self._number:
            self._number = number
            self._rows = self._by_batch.at(number)

    def rows(self, columns: slice) -> list[Tree]:
        """Return the views of `columns`, of all rows; entry T is the first row of end padding.

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
        # The usual case, one array, without the detour through a tree for each row.
        if not hasattr(bound, "_fields"):
            return self._split(bound)
        leaves = [self._split(leaf) for _, leaf in buffer_leaves(bound)]
        return [_filled(bound, iter(row)) for row in zip(*leaves, strict=True)]

    def _split(self, bound: BatchViews | NDArray[Any]) -> list[Any]:
        if isinstance(bound, BatchViews):
            return [self._convert(row) for row in bound.rows(self._number, self._n_rows)]
        # One object for all rows, as the stacks of each row are laid into the same memory.
        return [self._convert(bound)] * self._n_rows


def _bind(leaf: Any, columns: slice) -> BatchViews | NDArray[Any]:
    # Stacks that are stored frame by frame have no memory of their own, but for those written last.
    if isinstance(leaf, LazyFramesArray):
        return leaf.staged(columns)
    return BatchViews(leaf, columns)


def _filled(tree: Tree, leaves: Iterator[Any]) -> Tree:
    """Return a tree like another with other leaves, in their order."""
    return named_map(lambda _: next(leaves), tree)
