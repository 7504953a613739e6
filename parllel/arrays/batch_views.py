"""Views of an array batch by batch, made from one view of all its rows.

    block   | padding | T rows | T rows | T rows | padding |     full_size = 3 T: three batches
              start(0)^ start(1)^

What goes from batch to batch slices that view: nothing is worked out or checked anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array


class BatchViews:
    """Rows of some columns of an array in each of its batches, whichever of them is the body.

    The views share the array's memory, and stay where they are when it rotates. A view of an array stays
    where it is too, so it has one batch.

    Args:
        array: whose rows are memory, `[T, B, ...]`; not a LazyFramesArray.
        columns: a slice without a step.

    Attributes:
        array: the argument of that name.
        memory: [rows of all batches and padding, n, ...], the view that all others are made of.
        n_batches: how many batches there are.
    """

    __slots__ = ("_first", "_stop", "array", "distance", "memory", "n_batches")

    def __init__(self, array: Array, columns: slice = slice(None)) -> None:
        block = array.block
        self.array = array
        self.memory: NDArray[Any]
        if array.is_view:
            self.memory = np.asarray(array)[:, columns]
            self.n_batches, self._first, self.distance, self._stop = 1, 0, 0, len(array)
        else:
            # From `public`, so that the block is not moved away while these views are in use.
            self.memory = block.public()[:, columns]
            self.n_batches, self._first = block.n_windows, block.padding
            self.distance, self._stop = block.window_rows, block.length + block.padding

    def start(self, number: int) -> int:
        """Return which row of `memory` is the first of a batch; an array of one batch has no other."""
        return self._first + (number * self.distance if self.n_batches > 1 else 0)

    def rows(self, number: int, stop: int | None = None) -> NDArray[Any]:
        """Return rows 0 to `stop` - 1 of a batch; default all of its body.

        Raises:
            IndexError: if `stop` is beyond the padding.
        """
        if stop is None:
            stop = len(self.array)
        elif stop > self._stop:
            raise IndexError(f"rows 0 to {stop - 1}: {self.array!r} ends with row {self._stop - 1}")
        start = self.start(number)
        return self.memory[start : start + stop]
