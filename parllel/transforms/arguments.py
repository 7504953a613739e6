"""Check arguments of transforms, and arrays before compiled loops use them without checks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def check_fraction(owner: str, name: str, value: float) -> float:
    """Return `value` as a float. Raises TypeError if it is not a number, ValueError if outside [0, 1]."""
    if not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{owner}: {name}: expected a number in [0, 1], got {value!r}")
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{owner}: {name}: expected a number in [0, 1], got {value!r}")
    return float(value)


def check_positive(owner: str, name: str, value: float) -> float:
    """Return `value` as a float. Raises TypeError if it is not a number, ValueError unless above 0.

    Infinity is accepted, NaN is not.
    """
    if not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{owner}: {name}: expected a number above 0, got {value!r}")
    # Not `value <= 0.0`, which is false for NaN.
    if not value > 0.0:
        raise ValueError(f"{owner}: {name}: expected a number above 0, got {value!r}")
    return float(value)


def check_finite_positive(owner: str, name: str, value: float) -> float:
    """Return `value` as a float; raise ValueError unless it is above 0 and finite."""
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(f"{owner}: {name}: expected a finite number above 0, got {value!r}")
    return float(value)


def for_loop(
    owner: str, name: str, array: ArrayLike, shape: tuple[int, ...], dtype: DTypeLike
) -> NDArray[Any]:
    """Return `array` in `dtype` for a compiled loop, copied only if necessary.

    Raises:
        ValueError: if the shape differs, since the loop would read beyond the array.
    """
    # Writable although loops only read it: they are compiled for writable arrays, and refuse others.
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.behaved:
        found: NDArray[Any] = array  # as nearly always: `require` takes longer than short loops
    else:
        found = np.require(array, dtype, ["ALIGNED", "WRITEABLE"])
    if found.shape != shape:
        raise ValueError(f"{owner}: {name}: expected shape {shape}, got {found.shape}")
    return found


def for_steps(
    owner: str,
    reward: NDArray[Any],
    terminated: NDArray[Any],
    truncated: NDArray[Any],
    final_value: NDArray[Any],
    bootstrap_value: NDArray[Any],
) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Convert all five arguments for a compiled loop, and return them in order; see `for_loop`.

    Raises:
        ValueError: unless all have shape [T, B], and `bootstrap_value` has shape [B].
    """
    shape = np.shape(reward)
    if len(shape) != 2:
        raise ValueError(f"{owner}: reward: expected shape [T, B], got {shape}")
    # Numba refuses other dtypes too, but does not say which argument is wrong.
    return for_loop(owner, "reward", reward, shape, np.float32), (
        for_loop(owner, "terminated", terminated, shape, np.bool_),
        for_loop(owner, "truncated", truncated, shape, np.bool_),
        for_loop(owner, "final_value", final_value, shape, np.float32),
        for_loop(owner, "bootstrap_value", bootstrap_value, shape[1:], np.float32),
    )


def for_output(
    owner: str, name: str, array: NDArray[Any], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Return `array`; raise ValueError unless it is a writable float32 array of `shape`."""
    # No conversion as in `for_loop`: the loop would write to the copy.
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape:
        what = f"{getattr(array, 'dtype', type(array).__name__)} {np.shape(array)}"
        raise ValueError(f"{owner}: {name}: expected float32 {shape}, got {what}")
    if not array.flags.writeable:
        raise ValueError(f"{owner}: {name}: expected a writable array, got a read-only one")
    return array
