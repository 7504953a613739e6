"""Conversion of trees to MessagePack's own types and extension types::

    tree                              packed for msgspec
    ----                              ------------------
    None bool int float str bytes     the same
    list, dict                        list, dict
    tuple                             [TUPLE, item, ...]
    NamedTuple                        [NODE, name, value, name, value, ...]
    array of one dimension            its elements, as bytes with the code of their dtype
    other array, parllel's Array      [ARRAY, length, ..., elements]
    numpy scalar, bytearray, long int bytes with a code
    result of encode_part             the same, copied into the message

No list of the tree starts with one of the marks (TUPLE, NODE, ARRAY), so unpacking is unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
from msgspec import Raw
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.named_tuple import NamedTuple
from parllel.distributed.wire.codes import (
    ARRAY,
    BYTEARRAY,
    CODES,
    GREATEST_INT,
    LEAST_INT,
    LONG_INT,
    NODE,
    SCALAR,
    SCALAR_CODES,
    TUPLE,
)
from parllel.distributed.wire.limits import DEEPEST, check_empty_shape
from parllel.distributed.wire.wire_error import WireError, shown
from parllel.types import Tree

_TUPLE, _NODE, _ARRAY = Ext(TUPLE, b""), Ext(NODE, b""), Ext(ARRAY, b"")
# From this size in bytes, creating a view costs less than copying.
_LARGE = 4096
# Sent unchanged. The only str that cannot be sent has a lone surrogate, which msgspec detects.
_PLAIN = frozenset({type(None), bool, float, bytes, str})


def pack(value: Tree, depth: int = DEEPEST) -> Any:
    """Convert a tree to MessagePack's types and extension types.

    depth: number of nesting levels still allowed.

    Raises:
        WireError: for a value that cannot be sent. Names its path.
    """
    # By exact type: a subclass, even of int or dict, would be decoded as its base class.
    kind = type(value)
    return value if kind in _PLAIN else _PACKERS[kind](value, depth)


def refuse_surrogates(tree: Tree) -> NoReturn:
    """Raise the error for a tree with a str that cannot be encoded.

    Raises:
        WireError: always. It names the path of the str.
    """
    _find_surrogate(tree)
    raise AssertionError("no str of this tree contains a lone surrogate")


def _find_surrogate(value: Any) -> None:
    if isinstance(value, NamedTuple):
        value = value._asdict()
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise WireError(
                f"expected text, got a lone surrogate at {error.start} of {shown(value)}; "
                "send bytes: value.encode(errors='surrogatepass')"
            ) from None
    elif type(value) in (dict, list, tuple):
        for key, item in value.items() if type(value) is dict else enumerate(value):
            _find_surrogate(key)
            try:
                _find_surrogate(item)
            except WireError as error:
                raise error.under(key) from None


def _pack_int(value: int, depth: int) -> Any:
    if LEAST_INT <= value <= GREATEST_INT:
        return value
    # Bits of the value, or of a negative value's complement, and one for the sign.
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return Ext(LONG_INT, value.to_bytes((bits + 7) // 8, "big", signed=True))


def _pack_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    _check_depth(depth)
    packed = {}
    for key, item in value.items():
        if type(key) is not str:
            _check_key(key)
        kind = type(item)
        # No call for the most frequent types: halves the time for a small message.
        if kind in _PLAIN or (kind is int and LEAST_INT <= item <= GREATEST_INT):
            packed[key] = item
        else:
            try:
                packed[key] = _PACKERS[kind](item, depth - 1)
            except WireError as error:
                raise error.under(key) from None
    return packed


def _check_key(key: Any) -> None:
    if type(key) is not int or not LEAST_INT <= key <= GREATEST_INT:
        raise WireError(
            f"expected keys of type str or 64-bit int, got {shown(key)} ({_named(type(key))})"
        )


def _pack_list(value: list[Any], depth: int) -> list[Any]:
    return _pack_items([], value, depth)


def _pack_tuple(value: tuple[Any, ...], depth: int) -> list[Any]:
    return _pack_items([_TUPLE], value, depth)


def _pack_items(packed: list[Any], items: Iterable[Any], depth: int) -> list[Any]:
    _check_depth(depth)
    marks = len(packed)
    try:
        for item in items:
            kind = type(item)
            packed.append(item if kind in _PLAIN else _PACKERS[kind](item, depth - 1))
    except WireError as error:
        raise error.under(len(packed) - marks) from None
    return packed


def _pack_node(value: NamedTuple, depth: int) -> list[Any]:
    packed: list[Any] = [_NODE]
    # Packed as a dict, which puts a field's name into the path of an error.
    for name, item in _pack_dict(value._asdict(), depth).items():
        packed += (name, item)
    return packed


def _pack_array(value: NDArray[Any], depth: int) -> Any:
    code = CODES.get(value.dtype)
    if code is None:
        raise WireError(_bad_dtype(value.dtype))
    if value.nbytes < _LARGE:
        elements = Ext(code, value.tobytes())
    else:
        elements = Ext(code, np.ascontiguousarray(value).data)
    if value.ndim == 1:
        return elements
    _check_depth(depth)
    if not value.size:
        check_empty_shape(value.shape)
    return [_ARRAY, *value.shape, elements]


def _pack_scalar(value: np.generic, depth: int) -> Ext:
    return Ext(SCALAR_CODES[type(value)], value.tobytes())


def _pack_bytearray(value: bytearray, depth: int) -> Ext:
    return Ext(BYTEARRAY, value)


def _pack_other(value: Any, depth: int) -> Any:
    if isinstance(value, NamedTuple):
        return _pack_node(value, depth)
    if isinstance(value, Array):
        return _pack_array(np.asarray(value), depth)
    if isinstance(value, np.generic) and value.dtype in CODES:
        # An alias type, such as that of `long long`, is decoded as the standard type of its size.
        return Ext(CODES[value.dtype] + SCALAR, value.tobytes())
    if isinstance(value, np.generic):
        raise WireError(_bad_dtype(value.dtype))
    raise WireError(
        "expected None, bool, int, float, str, bytes, bytearray, list, tuple, dict, NamedTuple, or "
        f"a number or array of numpy or parllel, got {_named(type(value))}; convert it, because "
        "classes are not sent"
    )


def _bad_dtype(dtype: np.dtype[Any]) -> str:
    text = f"expected a numeric dtype of at most 64 bits for each part, got {dtype}"
    if dtype.kind in "fc":
        return f"{text}, which is not the same on every machine; use astype to send fewer bits"
    return f"{text}; send lists, str or bytes instead, or one array per field"


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise WireError(
            f"values are nested more than {DEEPEST} levels deep; perhaps one contains itself"
        )


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


class _Packers(dict[type, Callable[[Any, int], Any]]):
    """Pack function of each type; `_pack_other` for subclasses and unknown types."""

    def __missing__(self, kind: type) -> Callable[[Any, int], Any]:
        return _pack_other


_PACKERS = _Packers(
    {
        **dict.fromkeys(_PLAIN, lambda value, depth: value),
        int: _pack_int,
        dict: _pack_dict,
        list: _pack_list,
        tuple: _pack_tuple,
        np.ndarray: _pack_array,
        bytearray: _pack_bytearray,
        Raw: lambda value, depth: value,
        **dict.fromkeys(SCALAR_CODES, _pack_scalar),
    }
)
