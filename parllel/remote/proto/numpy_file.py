"""Arrays as `np.save` writes them, without pickles."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from parllel.wire import WireError
from parllel.wire.limits import check_empty_shape

_MOST_HEADER = 4096
_KINDS = "biufcmMSU"  # of numbers, times and text
_MOST_DIMENSIONS = 32
_MOST_ITEM = 1 << 16  # bytes of an element, where there are none


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
        WireError: if it is damaged, or holds objects or records.
    """
    file = io.BytesIO(data)
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
        shape, is_fortran, dtype = read(file, max_header_size=_MOST_HEADER)
    except WireError:
        raise
    # Headers are Python, which literal_eval and np.dtype refuse in many ways.
    except Exception as error:
        raise WireError(f"expected a file of np.save: {type(error).__name__}") from None
    if dtype.kind not in _KINDS:
        raise WireError(f"expected an array of numbers or text, got one of {dtype}")
    if len(shape) > _MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise WireError("expected a file of np.save, got one with a shape that is none")
    n_items = math.prod(shape)
    if not n_items:
        check_empty_shape(shape)
    # Before memory is taken: the header alone would say how much. Elements without bytes have any number.
    if not dtype.itemsize or (not n_items and dtype.itemsize > _MOST_ITEM):
        raise WireError(
            f"expected a file of np.save, got one with elements of {dtype.itemsize} bytes"
        )
    if len(data) - file.tell() != n_items * dtype.itemsize:
        raise WireError(
            f"expected a file of np.save of {n_items * dtype.itemsize} bytes, got "
            f"{len(data) - file.tell()}"
        )
    if n_items:
        flat: np.ndarray[Any, Any] = np.frombuffer(data, dtype, offset=file.tell()).copy()
    else:
        flat = np.zeros(0, dtype)
    return flat.reshape(shape, order="F" if is_fortran else "C")
