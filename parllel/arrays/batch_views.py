"""Views of an array batch by batch, made from one view of all its rows.

    block   | padding | T rows | T rows | T rows | padding |     full_size = 3 T: three batches
              start(0)^ start(1)^

Switching to another batch slices that view; no index is computed or checked again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array


class BatchViews:
    """Views of some columns of an array, for each of its batches.

    The views share the array's memory and keep their position when it rotates. An `array` that is
    itself a view also keeps its position, so it has only one batch.

    Args:
        array: `[T, B, ...]`, any Array except a LazyFramesArray, whose rows are not memory.
        columns: a slice without a step.

    Attributes:
        array: the array.
        memory: [rows of all batches and padding, n, ...], the numpy array on which all views are
            based.
        n_batches: number of batches.
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
            # Through `public`, so that the block is not moved while these views are in use.
            self.memory = block.public()[:, columns]
            self.n_batches, self._first = block.n_windows, block.padding
            self.distance, self._stop = block.window_rows, block.length + block.padding

    def start(self, number: int) -> int:
        """Return the index in `memory` of the first row of a batch."""
        return self._first + (number * self.distance if self.n_batches > 1 else 0)

    def rows(self, number: int, stop: int | None = None) -> NDArray[Any]:
        """Return rows 0 to `stop` - 1 of a batch, by default its whole body.

        Raises:
            IndexError: if `stop` is beyond the padding.
        """
        if stop is None:
            stop = len(self.array)
        elif stop > self._stop:
            raise IndexError(f"rows 0 to {stop - 1}: {self.array!r} ends with row {self._stop - 1}")
        start = self.start(number)
        return self.memory[start : start + stop]
