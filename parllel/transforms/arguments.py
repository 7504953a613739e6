"""Checks of constructor arguments, and of arrays before they reach compiled loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def check_fraction(owner: str, name: str, value: float) -> float:
    """Return `value`, which must lie in [0, 1]."""
    if not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{owner}: {name}: expected a number in [0, 1], got {value!r}")
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{owner}: {name}: expected a number in [0, 1], got {value!r}")
    return float(value)


def check_positive(owner: str, name: str, value: float) -> float:
    """Return `value`, which must be above zero; infinity is allowed, NaN is not."""
    if not value > 0.0:
        raise ValueError(f"{owner}: {name}: expected a number above 0, got {value!r}")
    return float(value)


def check_finite_positive(owner: str, name: str, value: float) -> float:
    """Return `value`, which must be above zero and finite."""
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(f"{owner}: {name}: expected a finite number above 0, got {value!r}")
    return float(value)


def for_loop(
    owner: str, name: str, array: ArrayLike, shape: tuple[int, ...], dtype: DTypeLike
) -> NDArray[Any]:
    """Return `array` as compiled loops take it; a copy only where the dtype is another.

    Raises:
        ValueError: if the shape is another, which a loop would not notice.
    """
    found = np.require(array, dtype, ["ALIGNED", "WRITEABLE"])
    if found.shape != shape:
        raise ValueError(f"{owner}: {name}: expected shape {shape}, got {found.shape}")
    return found


def for_output(
    owner: str, name: str, array: NDArray[Any], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Return `array`, which must be a writable float32 array of `shape`: it is written in place."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape:
        what = f"{getattr(array, 'dtype', type(array).__name__)} {np.shape(array)}"
        raise ValueError(f"{owner}: {name}: expected float32 {shape}, got {what}")
    if not array.flags.writeable:
        raise ValueError(f"{owner}: {name}: expected a writable array, got a read-only one")
    return array
