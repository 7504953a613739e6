"""Arrays in the format of `np.save`, without pickle."""

from __future__ import annotations

import io
import math
import reprlib
from typing import Any

import numpy as np

from parllel.distributed.wire.limits import n_nested
from parllel.distributed.wire.wire_error import WireError

_MAX_HEADER = 4096
_KINDS = "biufcmMSU"  # numbers, times and text
_MAX_DIMENSIONS = 32
_MAX_ROWS, _MAX_MISSING = 1 << 20, 1 << 31
_MAX_ITEM = 1 << 16  # bytes per element of an empty array


def array_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Serialise an array in the format of `np.save`.

    Raises:
        WireError: for arrays of objects or records.
    """
    if array.dtype.kind not in _KINDS:
        raise WireError(f"expected an array of numbers or text, got one of {array.dtype}")
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def read_array(data: bytes) -> np.ndarray[Any, Any]:
    """Read an array in the format of `np.save` from an untrusted source. The array is writable.

    Raises:
        WireError: if the data are damaged, contain objects or records, or are not as long as announced.
    """
    file = io.BytesIO(data)
    shape, is_fortran, dtype = _header(file)
    if dtype.kind not in _KINDS:
        raise WireError(f"expected an array of numbers or text, got one of {dtype}")
    if len(shape) > _MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise WireError("expected a file written by np.save, got one with an invalid shape")
    n_items = math.prod(shape)
    # Checked before memory is allocated, as the header may announce any amount.
    if not n_items:
        _check_empty(shape, dtype)
    expected, got = n_items * dtype.itemsize, len(data) - file.tell()
    if expected != got or not dtype.itemsize:
        raise WireError(
            f"expected a file written by np.save of {reprlib.repr(expected)} bytes, got {got}, in "
            f"elements of {dtype.itemsize}"
        )
    if not n_items:
        return np.zeros(shape, dtype)
    elements = np.frombuffer(data, dtype, offset=file.tell()).copy()
    array: np.ndarray[Any, Any] = elements.reshape(shape, order="F" if is_fortran else "C")
    return array


def _header(file: io.BytesIO) -> tuple[Any, bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype from a file's header."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise WireError(
                f"expected a file written by np.save in format 1.0 or 2.0, got format {version}"
            )
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        return read(file, max_header_size=_MAX_HEADER)
    except WireError:
        raise
    # Headers are Python literals, for which literal_eval and np.dtype raise all kinds of errors.
    except Exception as error:
        raise WireError(f"expected a file written by np.save: {type(error).__name__}") from None


def _check_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check an array without elements, as `wire` does: it takes a few bytes for any shape."""
    n_missing = math.prod(length or 1 for length in shape)
    if n_nested(shape) > _MAX_ROWS or n_missing > _MAX_MISSING:
        raise WireError(
            f"empty array of shape {reprlib.repr(shape)}: expected at most {_MAX_ROWS} rows, and nonzero "
            f"lengths whose product is at most {_MAX_MISSING}"
        )
    if dtype.itemsize > _MAX_ITEM:
        raise WireError(
            f"expected a file written by np.save with elements of at most {_MAX_ITEM} bytes, got "
            f"{dtype.itemsize}"
        )
