"""Validation of the arguments of Array classes."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `shape` is a tuple of positive ints. `name` is the class in the message."""
    if not isinstance(shape, tuple) or not shape:
        raise ValueError(
            f"{name}: shape: expected a tuple of at least one dimension, got {shape!r}"
        )
    # numpy integers too: sizes often come from spaces and shapes.
    if any(not isinstance(n, (int, np.integer)) or n < 1 for n in shape):
        raise ValueError(f"{name}: shape: every dimension must be an int >= 1, got {shape}")


def check_layout(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    padding: int,
    full_size: int,
    *,
    rotates: bool,
    windows: int,
) -> None:
    """Raise ValueError unless dtype, padding and full_size fit the shape.

    rotates: whether padding is allowed.  windows: minimum number of batches.
    """
    # Objects are pointers, which are meaningless in another process.
    if dtype.hasobject:
        raise ValueError(f"{name}: dtype: object arrays cannot be shared, got {dtype}")
    for what, number in (("padding", padding), ("full_size", full_size)):
        if not isinstance(number, (int, np.integer)):
            raise ValueError(f"{name}: {what}: expected an int, got {number!r}")
    if padding < 0:
        raise ValueError(f"{name}: padding: expected at least 0, got {padding}")
    if padding and not rotates:
        raise ValueError(
            f"{name}: padding: expected 0, got {padding}; only rotating arrays have padding"
        )
    if padding > shape[0]:
        raise ValueError(
            f"{name}: padding: expected at most {shape[0]}, the number of rows in the body, got "
            f"{padding}"
        )
    least = windows * shape[0]
    if full_size < least or full_size % shape[0]:
        raise ValueError(
            f"{name}: full_size: expected a multiple of {shape[0]}, the rows in a batch, of at "
            f"least {least}, got {full_size}"
        )
