"""Rows of one field in a cage's columns, for each batch of the buffer.

    memory   | padding | T rows of batch 0 | T rows of batch 1 | ...     of all columns
    of(k)                                  [v, v, ..., v]                views of the cage's columns, by row

Frame stacks that are stored frame by frame have no views; writers with the same interface take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.arrays.batch_views import BatchViews
from parllel.arrays.lazy_frames import LazyFramesArray

# Byte offset in the array's memory, shape and strides; for stacks stored frame by frame, the row of the
# memory and the column.
Span: TypeAlias = tuple[Any, ...]


class LeafRows:
    """Views of the first `n_rows` rows of each batch.

    Args:
        name: name of the field, for messages.
        array: array of the field.
        columns: the cage's columns.
        n_rows: T, or T + 1 if the row after the batch is written too.
    """

    def __init__(self, name: str, array: Array, columns: slice, n_rows: int) -> None:
        self.name, self.array, self.n_rows = name, array, n_rows
        self._columns = columns
        self.views = None if isinstance(array, LazyFramesArray) else BatchViews(array, columns)
        self.n_batches = 1 if array.is_view else array.block.n_windows

    def of(self, number: int) -> list[Any]:
        """Return a view, or a writer, for each row of a batch."""
        if self.views is not None:
            # Made once per batch: indexing an array makes a new view each time.
            return list(self.views.rows(number, self.n_rows))
        # An array with a single batch serves all batches of the others.
        number = number if self.n_batches > 1 else 0
        assert isinstance(self.array, LazyFramesArray)
        return [self.array.writers(t, self._columns, number) for t in range(self.n_rows)]

    def spans(self) -> list[Span]:
        """Return the memory locations of the first and last row in the first and the last batch.

        All other rows lie between them at equal distances.
        """
        # A cage compares these with those of its workers: four places determine all others.
        ends = [self.of(number) for number in (0, self.n_batches - 1)]
        return [self._span(row) for rows in ends for row in (rows[0], rows[-1])]

    def _span(self, row: Any) -> Span:
        if self.views is None:
            place: Span = row.place
            return place
        # Relative to the memory, which each process maps at a different address.
        return row.ctypes.data - self.array.block.public().ctypes.data, row.shape, row.strides


class FlagRows:
    """Flag fields whose rows are cleared together.

    Fields of the same dtype are allocated side by side, so one call clears a row of all of them.
    This takes a third of the time.
    """

    def __init__(self, leaves: Sequence[LeafRows]) -> None:
        self._leaves = leaves
        self._first = leaves[0].views
        self._together: NDArray[Any] | None = None
        views = [leaf.views for leaf in leaves]
        starts = [
            None if one is None else (one.start(0), one.distance, one.n_batches) for one in views
        ]
        if all(start == starts[0] for start in starts):
            together = _together([one.memory for one in views if one is not None])
            self._together = None if together is None else together.swapaxes(0, 1)

    def of(self, number: int) -> list[list[NDArray[Any]]]:
        """Return, for each row of a batch, the arrays that hold its flags."""
        if self._together is None or self._first is None:
            return [[*row] for row in zip(*(leaf.of(number) for leaf in self._leaves), strict=True)]
        start = self._first.start(number)
        return [[row] for row in self._together[start : start + self._leaves[0].n_rows]]


def _together(views: list[NDArray[Any]]) -> NDArray[Any] | None:
    """Return one array over equal views at equal distances in one memory, or None."""
    # The layout is the allocator's choice, so everything is checked; other flags are cleared one by one.
    if len(views) < 2:
        return None
    first, second = views[:2]
    places = [view.ctypes.data for view in views]
    distance = places[1] - places[0]
    # A single array has one dtype, shape and stride.
    alike = all(
        view.dtype == first.dtype and view.strides == first.strides and view.shape == first.shape
        for view in views
    )
    even = all(b - a == distance for a, b in pairwise(places))
    # Of one owner, too: separate memories may lie at equal distances by chance, and the array would keep only
    # the first of them alive.
    if not (alike and even and distance > 0 and _owner(first) is _owner(second)):
        return None
    shape, strides = (len(views), *first.shape), (distance, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def _owner(view: NDArray[Any]) -> Any:
    """Return the object that owns a view's memory."""
    owner: Any = view
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner
