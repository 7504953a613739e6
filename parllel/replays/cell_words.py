"""Memory of arrays as words, which compiled loops copy without knowing the dtype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_words(array: NDArray[Any], n_leading: int) -> NDArray[Any]:
    """Return a view `[*leading, words]` of a contiguous array, in the widest words that divide a cell.

    n_leading: number of dimensions before those of a cell.
    """
    leading, cell = array.shape[:n_leading], array.shape[n_leading:]
    nbytes = math.prod(cell) * array.itemsize
    # Words of integers: a comparison of floats would find NaN different from itself.
    size = math.gcd(nbytes, 8)
    size = 1 if size == 2 else size  # the loops are not compiled for two
    flat: NDArray[Any] = array.reshape(*leading, -1).view(np.uint8)
    words: NDArray[Any] = flat.view(f"u{size}")
    return words
