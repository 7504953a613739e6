"""The rows of one field in a cage's columns, whichever batch of the buffer they are of.

    memory   | padding | T rows of batch 0 | T rows of batch 1 | ...     of all columns
    of(k)                                  [v, v, ..., v]                views of the cage's columns, by row

Rows of stacked frames that are stored frame by frame have no views; what stands for these is written alike.
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

# Bytes from the first element of the array's memory, shape, bytes from one element to the next; for stacks
# that are stored frame by frame the row of the memory, and the column.
Span: TypeAlias = tuple[Any, ...]


class LeafRows:
    """Views of the first `n_rows` rows of each batch.

    Args:
        name: of the field, for messages.
        array: of the field.
        columns: the cage's.
        n_rows: T, or one more where the row that follows a batch is written.
    """

    def __init__(self, name: str, array: Array, columns: slice, n_rows: int) -> None:
        self.name, self.array, self.n_rows = name, array, n_rows
        self._columns = columns
        self.views = None if isinstance(array, LazyFramesArray) else BatchViews(array, columns)
        self.n_batches = 1 if array.is_view else array.block.n_windows

    def of(self, number: int) -> list[Any]:
        """Return what each row of a batch is read from and written to."""
        if self.views is not None:
            # A list of views, made once per batch: an array makes a new view whenever a row is asked for.
            return list(self.views.rows(number, self.n_rows))
        # An array of one batch is the same in all batches of the others.
        number = number if self.n_batches > 1 else 0
        assert isinstance(self.array, LazyFramesArray)
        return [self.array.writers(t, self._columns, number) for t in range(self.n_rows)]

    def spans(self) -> list[Span]:
        """Return where the first and the last row lie, of the first batch and of the last.

        All other rows lie between them at even distances.
        """
        # Cages compare these with what a worker says of its own views: few numbers stand for all of them.
        ends = [self.of(number) for number in (0, self.n_batches - 1)]
        return [self._span(row) for rows in ends for row in (rows[0], rows[-1])]

    def _span(self, row: Any) -> Span:
        if self.views is None:
            place: Span = row.place
            return place
        # Relative to the memory, which each process maps at another address.
        return row.ctypes.data - self.array.block.public().ctypes.data, row.shape, row.strides


class FlagRows:
    """The rows of flags that are cleared together.

    Fields of one type are allocated side by side, and one call that clears a row of all costs a third.
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
        """Return for each row of a batch the arrays that hold its flags."""
        if self._together is None or self._first is None:
            return [[*row] for row in zip(*(leaf.of(number) for leaf in self._leaves), strict=True)]
        start = self._first.start(number)
        return [[row] for row in self._together[start : start + self._leaves[0].n_rows]]


def _together(views: list[NDArray[Any]]) -> NDArray[Any] | None:
    """Return one array over equal views at equal distances in one memory, None if they are not such."""
    # How they lie is up to the allocation, so all is checked; other flags are cleared one by one.
    if len(views) < 2:
        return None
    first, second = views[:2]
    places = [view.ctypes.data for view in views]
    distance = places[1] - places[0]
    # An array over them has one dtype, shape and stride for all.
    alike = all(
        view.dtype == first.dtype and view.strides == first.strides and view.shape == first.shape
        for view in views
    )
    even = all(b - a == distance for a, b in pairwise(places))
    # Of one owner, too: memories of two may lie at even distances by chance, and the array would keep only
    # the first of them alive.
    if not (alike and even and distance > 0 and _owner(first) is _owner(second)):
        return None
    shape, strides = (len(views), *first.shape), (distance, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def _owner(view: NDArray[Any]) -> Any:
    """Return the object whose memory it is."""
    owner: Any = view
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner
