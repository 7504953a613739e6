"""Digests of trees, to compare trees on different machines."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from msgspec import Raw
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from parllel.distributed.wire.codes import DTYPES, SCALAR
from parllel.distributed.wire.pack import pack, refuse_surrogates
from parllel.distributed.wire.wire_error import WireError
from parllel.types import Tree

# Hashed first. A different serialisation of trees must use a different prefix.
_FORM = b"parllel tree 1;"
_NAN = struct.pack("<d", float("nan"))


def digest(tree: Tree) -> str:
    """Return the SHA-256 of a tree as 64 hexadecimal digits, equal for equal trees.

    The order of a dict's keys, the memory layout and byte order of an array, and the payload bits of NaNs
    are ignored. Everything else counts: dtypes and shapes; -0.0 and 0.0; 1, 1.0 and True; list and tuple;
    dict and node; numpy scalar and 0-d array; and the order of a node's fields, since nodes can be unpacked.
    The result is the same in every process, on every machine and in every version of Python.

    Raises:
        WireError: if the tree cannot be encoded.
    """
    state = hashlib.sha256(_FORM)
    try:
        _add(pack(tree), state.update)
    except UnicodeEncodeError:
        refuse_surrogates(tree)
    except RecursionError:
        raise WireError("values are nested too deeply for the Python stack") from None
    return state.hexdigest()


def _add(value: Any, update: Callable[[Any], None]) -> None:
    """Hash a packed value: type letter, length, content, so that no two values give the same bytes."""
    kind = type(value)
    if kind is str or kind is bytes or kind is int or value is None or kind is bool:
        update(_leaf(value))
    elif kind is float:
        update(b"d" + (struct.pack("<d", value) if value == value else _NAN))
    elif kind is list:
        update(b"l%d:" % len(value))
        for item in value:
            _add(item, update)
    elif kind is dict:
        update(b"m%d:" % len(value))
        for key, item in sorted((_leaf(key), item) for key, item in value.items()):
            update(key)
            _add(item, update)
    elif kind is Raw:
        raise WireError("expected a tree, got the result of encode_part; pass the tree itself")
    else:
        assert kind is Ext
        _add_extension(value, update)


def _leaf(value: Any) -> bytes:
    if type(value) is str:
        text = value.encode()
        return b"s%d:%b" % (len(text), text)
    if type(value) is bytes:
        return b"b%d:%b" % (len(value), value)
    if type(value) is int:
        return b"i%x;" % value
    return {None: b"n", True: b"t", False: b"f"}[value]


def _add_extension(value: Ext, update: Callable[[Any], None]) -> None:
    payload = cast(bytes, value.data)  # or a view of contiguous memory
    offset = SCALAR if value.code >= SCALAR else 0
    dtype = DTYPES.get(value.code - offset)
    if dtype is None:
        update(b"x%d:%d:" % (value.code, len(payload)))
        update(payload)
        return
    little = dtype.newbyteorder("<")
    elements: NDArray[Any] = np.frombuffer(payload, dtype)
    elements = elements.astype(little, copy=False)
    if dtype.kind == "c":
        elements = elements.view(f"<f{dtype.itemsize // 2}")
    if dtype.kind in "fc":
        unequal = np.isnan(elements)
        if unequal.any():
            elements = elements.copy()
            elements[unequal] = np.nan
    update(b"x%b%d:%d:" % (little.str[1:].encode(), offset, elements.nbytes))
    update(elements.data)
