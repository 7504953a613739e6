"""Conversion of numbers and arrays to and from JSON values, given dtype and shape."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.wire.wire_error import WireError, shown

# The spelling of parllel.logging, readable by Python's `float` and JavaScript's `Number`.
_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def numbers_to_json(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Return a number or nested lists, from which `numbers_from_json` restores the same array.

    Floats become the shortest decimals that identify them in their dtype.

    Raises:
        WireError: for another shape or kind of numbers, or a number that does not fit the dtype.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise WireError(f"expected shape {shape}, got lists of different lengths") from None
    if array.shape != shape:
        raise WireError(f"expected shape {shape}, got {array.shape}")
    if array.dtype != dtype:
        array = _cast(array, dtype)
    if dtype.kind != "f":
        return array.tolist()
    finite = np.isfinite(array)
    with np.errstate(invalid="ignore"):  # numpy warns of a signalling NaN
        short = array.astype(np.float64)
        if dtype.itemsize < 8:
            text = array.astype(np.str_).astype(np.float64)
            # Verified, because numpy may be configured to print fewer digits.
            if ((text.astype(dtype) == array) | ~finite).all():
                short = text
    if finite.all():
        return short.tolist()
    spelled = short.astype(object)
    for name, number in _SPELLED.items():
        spelled[np.isnan(short) if name == "NaN" else short == number] = name
    return spelled.tolist()


def numbers_from_json(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Build an array from a number or nested lists.

    Raises:
        WireError: for a list of another length or a number that does not fit the dtype. Names its
            indices.
    """
    flat = _flat(value, shape)
    if dtype.kind == "f":
        array = _floats(flat, dtype, shape)
    elif dtype.kind == "b":
        _check_types(flat, {bool}, "true or false", shape)
        array = np.array(flat, dtype)
    else:
        info = np.iinfo(dtype)
        expected = f"an integer from {info.min} to {info.max}"
        _check_types(flat, {int}, expected, shape)
        if flat and (min(flat) < info.min or max(flat) > info.max):
            i = next(i for i, n in enumerate(flat) if not info.min <= n <= info.max)
            raise element_error(expected, flat[i], i, shape)
        array = np.array(flat, dtype)
    return array.reshape(shape)


def element_error(expected: str, got: Any, i: int, shape: tuple[int, ...]) -> WireError:
    """Build the error for element `i` of an array, in C order, with its indices as path."""
    error = WireError(f"expected {expected}, got {described(got)}")
    for index in reversed(np.unravel_index(i, shape)) if shape else ():
        error.under(int(index))
    return error


def described(value: Any) -> str:
    """Describe a JSON value in JSON's terms."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with the keys {shown(list(value))}"
    return {None: "null", True: "true", False: "false"}[value] if _is_word(value) else shown(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast an array to a space's dtype. Integers must be exact, floats are rounded."""
    kinds = {"f": "fiu", "b": "b"}.get(dtype.kind, "iu")
    if array.dtype.kind not in kinds:
        raise WireError(f"expected {dtype}, got {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    lost = np.isfinite(array) & ~np.isfinite(cast) if dtype.kind == "f" else array != cast
    if lost.any():
        i = int(np.flatnonzero(lost)[0])
        raise element_error(f"a value of {dtype}", array.reshape(-1)[i].item(), i, array.shape)
    return cast


def _flat(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """Flatten nested lists, checking every length."""
    level = [value]
    for axis, length in enumerate(shape):
        for i, item in enumerate(level):
            if type(item) is not list or len(item) != length:
                raise element_error(f"a list of {length}", item, i, shape[:axis])
        level = list(itertools.chain.from_iterable(level))
    return level


def _check_types(flat: list[Any], kinds: set[type], expected: str, shape: tuple[int, ...]) -> None:
    if not set(map(type, flat)) <= kinds:
        i = next(i for i, item in enumerate(flat) if type(item) not in kinds)
        raise element_error(expected, flat[i], i, shape)


def _floats(flat: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    expected = f'a number that fits in a {dtype}, "NaN", "Infinity" or "-Infinity"'
    numbers = flat
    if str in set(map(type, flat)):
        numbers = [_SPELLED.get(item, item) if type(item) is str else item for item in flat]
    _check_types(numbers, {float, int}, expected, shape)
    try:
        wide = np.array(numbers, np.float64)
    except OverflowError:  # an int beyond float64
        first = next(i for i, number in enumerate(numbers) if _overflows(number))
        raise element_error(expected, flat[first], first, shape) from None
    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    # Infinity is valid only where it was spelled out; elsewhere a number was too large for the dtype.
    if not np.isfinite(array).all():
        for i in np.flatnonzero(~np.isfinite(array)).tolist():
            if type(flat[i]) is not str:
                raise element_error(expected, flat[i], i, shape)
    return array


def _overflows(number: float) -> bool:
    try:
        float(number)
    except OverflowError:
        return True
    return False
