"""Arrange several pictures in one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def picture_grid(pictures: NDArray[Any]) -> NDArray[Any]:
    """Return pictures [..., n, H, W, C] as grids [..., rows * H, columns * W, C], in new memory.

    Pictures fill the grid row by row; there are as many columns as rows, or one more. Empty places are black.

    Raises:
        ValueError: if there are fewer than four dimensions, or no pictures.
    """
    if pictures.ndim < 4 or pictures.shape[-4] < 1:
        raise ValueError(f"pictures: expected [..., n, H, W, C], got shape {pictures.shape}")
    *lead, n, height, width, channels = pictures.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    grid = np.zeros((*lead, rows * height, columns * width, channels), pictures.dtype)
    for i in range(n):
        row, column = divmod(i, columns)
        above, left = row * height, column * width
        place = grid[..., above : above + height, left : left + width, :]
        place[...] = pictures[..., i, :, :, :]
    return grid
