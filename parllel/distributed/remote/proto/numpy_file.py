"""Arrays as `np.save` writes them, without pickles."""

from __future__ import annotations

import io
import math
import reprlib
from typing import Any

import numpy as np

from parllel.distributed.wire.limits import n_nested
from parllel.distributed.wire.wire_error import WireError

_MAX_HEADER = 4096
_KINDS = "biufcmMSU"  # of numbers, times and text
_MAX_DIMENSIONS = 32
_MAX_ROWS, _MAX_MISSING = 1 << 20, 1 << 31
_MAX_ITEM = 1 << 16  # bytes of an element, where there are none


def array_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Return what `np.save` writes.

    Raises:
        WireError: for arrays of objects or records.
    """
    if array.dtype.kind not in _KINDS:
        raise WireError(f"expected an array of numbers or text, got one of {array.dtype}")
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def read_array(data: bytes) -> np.ndarray[Any, Any]:
    """Return the array of a file of `np.save`, from whoever it may come; it can be written to.

    Raises:
        WireError: if it is damaged, holds objects or records, or says that it has more than it brings.
    """
    file = io.BytesIO(data)
    shape, is_fortran, dtype = _header(file)
    if dtype.kind not in _KINDS:
        raise WireError(f"expected an array of numbers or text, got one of {dtype}")
    if len(shape) > _MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise WireError("expected a file of np.save, got one with a shape that is none")
    n_items = math.prod(shape)
    # Before memory is taken: the header alone would say how much.
    if not n_items:
        _check_empty(shape, dtype)
    expected, got = n_items * dtype.itemsize, len(data) - file.tell()
    if expected != got or not dtype.itemsize:
        raise WireError(
            f"expected a file of np.save of {reprlib.repr(expected)} bytes, got {got}, in elements of "
            f"{dtype.itemsize}"
        )
    if not n_items:
        return np.zeros(shape, dtype)
    elements = np.frombuffer(data, dtype, offset=file.tell()).copy()
    array: np.ndarray[Any, Any] = elements.reshape(shape, order="F" if is_fortran else "C")
    return array


def _header(file: io.BytesIO) -> tuple[Any, bool, np.dtype[Any]]:
    """Return the shape, the order and the dtype that a file begins with."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise WireError(
                f"a file of np.save of version {version}, of 1.0 and 2.0 that are known"
            )
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        return read(file, max_header_size=_MAX_HEADER)
    except WireError:
        raise
    # Headers are Python, which literal_eval and np.dtype refuse in many ways.
    except Exception as error:
        raise WireError(f"expected a file of np.save: {type(error).__name__}") from None


def _check_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check an array without elements as `wire` does: it takes a few bytes whatever its shape is."""
    n_missing = math.prod(length or 1 for length in shape)
    if n_nested(shape) > _MAX_ROWS or n_missing > _MAX_MISSING:
        raise WireError(
            f"an array of shape {reprlib.repr(shape)} without elements: expected at most {_MAX_ROWS} rows, "
            f"and lengths beside 0 whose product is at most {_MAX_MISSING}"
        )
    if dtype.itemsize > _MAX_ITEM:
        raise WireError(
            f"expected a file of np.save, got one without elements of {dtype.itemsize} bytes each"
        )
