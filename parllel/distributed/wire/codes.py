"""The codes by which a message names what MessagePack has no type of its own for.

They are the codes of MessagePack's extension types. None may ever change its meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# The first two bytes of each message: a list of two, of which the first is the version of the format. So any
# reader of MessagePack can read it, and nothing has to be copied to put the version before the tree.
VERSION = 1
PREFIX = bytes([0x92, VERSION])

# The first item of a list that stands for something else, with no payload of its own.
TUPLE, NODE, ARRAY = 0, 1, 2
# What MessagePack has ints for; and keys of dicts, as those of greater ints can be made to collide.
LEAST_INT, GREATEST_INT = -(1 << 63), (1 << 64) - 1
# An int beyond them, as the bytes of its two's complement, the greatest first.
LONG_INT = 3
BYTEARRAY = 4
# The payload is the elements. Of a numpy scalar it is one, and its code is greater by this.
SCALAR = 64

_FIRST, _BIG_ENDIAN = 16, 16
_KINDS = ("b1", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16")
DTYPES: dict[int, np.dtype[Any]] = {}
for _code, _kind in enumerate(_KINDS, _FIRST):
    DTYPES[_code] = np.dtype(f"<{_kind}")
    if DTYPES[_code].itemsize > 1:
        DTYPES[_code + _BIG_ENDIAN] = np.dtype(f">{_kind}")
# Equal dtypes of other names, such as those of `long long`, find the same code.
CODES: dict[np.dtype[Any], int] = {dtype: code for code, dtype in DTYPES.items()}
SCALAR_CODES = {dtype.type: code + SCALAR for dtype, code in CODES.items() if dtype.isnative}
