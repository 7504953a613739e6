"""MessagePack extension codes for the types that MessagePack lacks. No code may ever change its meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

# The first two bytes of each message: a list of two items, the first of which is the format's version. Any
# MessagePack reader can read it, and adding the version copies nothing.
VERSION = 1
PREFIX = bytes([0x92, VERSION])

# Marks, without payload: as the first item of a list they say what the list encodes.
TUPLE, NODE, ARRAY = 0, 1, 2
# The range of MessagePack's ints. Also of int keys, as larger ints with equal hashes are easy to construct.
LEAST_INT, GREATEST_INT = -(1 << 63), (1 << 64) - 1
# An int beyond that range, in two's complement, big-endian.
LONG_INT = 3
BYTEARRAY = 4
# The payload of a dtype's code is the elements of an array. Adding this marks a numpy scalar, with one
# element.
SCALAR = 64

_FIRST, _BIG_ENDIAN = 16, 16
_KINDS = ("b1", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16")
DTYPES: dict[int, np.dtype[Any]] = {}
for _code, _kind in enumerate(_KINDS, _FIRST):
    DTYPES[_code] = np.dtype(f"<{_kind}")
    if DTYPES[_code].itemsize > 1:
        DTYPES[_code + _BIG_ENDIAN] = np.dtype(f">{_kind}")
# Looked up by equality, so platform-dependent aliases such as `long long` find the same code.
CODES: dict[np.dtype[Any], int] = {dtype: code for code, dtype in DTYPES.items()}
SCALAR_CODES = {dtype.type: code + SCALAR for dtype, code in CODES.items() if dtype.isnative}
