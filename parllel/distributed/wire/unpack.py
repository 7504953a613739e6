"""Conversion of values decoded by msgspec to the original tree, the inverse of `pack`."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedTuple
from parllel.distributed.wire.codes import (
    ARRAY,
    BYTEARRAY,
    DTYPES,
    GREATEST_INT,
    LEAST_INT,
    LONG_INT,
    NODE,
    SCALAR,
    TUPLE,
)
from parllel.distributed.wire.limits import check_empty_shape
from parllel.distributed.wire.wire_error import WireError, shown
from parllel.types import Tree

_FLAGS = np.dtype(bool)
_TOO_DEEP = "values are nested more deeply than Limits.depth allows"


class _Mark:
    """First item of a list that encodes a tuple, node or array; builds it from the other items.

    msgspec decodes the mark before it has read the other items, so building takes a second pass.
    """

    __slots__ = ("build",)

    def __init__(self, build: Callable[[list[Any], int], Any]) -> None:
        self.build = build

    def __repr__(self) -> str:
        return "a mark"


def extension(code: int, payload: memoryview) -> Any:
    """Decode an extension type. The result does not refer to the payload.

    Raises:
        WireError: for an unknown code, or a payload that does not fit it.
    """
    dtype = DTYPES.get(code)
    if dtype is not None:
        return _elements(dtype, payload)
    mark = _MARKS.get(code)
    if mark is not None:
        if payload:
            raise WireError(f"extension {code}: expected no payload, got {len(payload)} bytes")
        return mark
    dtype = DTYPES.get(code - SCALAR)
    if dtype is not None:
        if len(payload) != dtype.itemsize:
            raise WireError(f"expected {dtype.itemsize} bytes for one {dtype}, got {len(payload)}")
        return _elements(dtype, payload)[0]
    if code == LONG_INT:
        return int.from_bytes(payload, "big", signed=True)
    if code == BYTEARRAY:
        return bytearray(payload)
    raise WireError(f"extension {code} is not part of this format")


def finish(value: Any, depth: int) -> Tree:
    """Build the tree from decoded values, in place.

    depth: number of nesting levels allowed.

    Raises:
        WireError: for deeper nesting, a misplaced mark, or a key that is neither str nor int.
    """
    finisher = _FINISHERS.get(type(value))
    return value if finisher is None else finisher(value, depth)


def _elements(dtype: np.dtype[Any], payload: memoryview) -> NDArray[Any]:
    try:
        if dtype is _FLAGS:
            # Any byte may arrive, but numpy's bool arithmetic is only right for 0 and 1.
            flags: NDArray[Any] = np.frombuffer(payload, np.uint8) != 0
            return flags
        # A copy is writable, aligned, and does not keep the message alive.
        elements: NDArray[Any] = np.frombuffer(payload, dtype).copy()
        return elements
    except ValueError:
        raise WireError(
            f"expected a multiple of {dtype.itemsize} bytes, the size of {dtype}, got "
            f"{len(payload)} bytes"
        ) from None


def _finish_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    if depth < 1:
        raise WireError(_TOO_DEEP)
    for key, item in value.items():
        # msgspec accepts any hashable key: None, a float, even a mark.
        if type(key) is not str and not (type(key) is int and LEAST_INT <= key <= GREATEST_INT):
            raise WireError(f"expected keys of type str or 64-bit int, got {shown(key)}")
        finisher = _FINISHERS.get(type(item))
        if finisher is not None:
            value[key] = finisher(item, depth - 1)
    return value


def _finish_list(value: list[Any], depth: int) -> Any:
    if depth < 1:
        raise WireError(_TOO_DEEP)
    if value and type(value[0]) is _Mark:
        return value[0].build(value, depth)
    return _finish_items(value, depth)


def _finish_items(items: list[Any], depth: int) -> list[Any]:
    # Fast path: most items are in long lists of numbers or names, which need no second pass.
    if _KINDS.isdisjoint(map(type, items)):
        return items
    for i, item in enumerate(items):
        finisher = _FINISHERS.get(type(item))
        if finisher is not None:
            items[i] = finisher(item, depth - 1)
    return items


def _build_tuple(items: list[Any], depth: int) -> tuple[Any, ...]:
    return tuple(_finish_items(items[1:], depth))


def _build_node(items: list[Any], depth: int) -> NamedTuple:
    names, values = items[1::2], items[2::2]
    if len(names) != len(values) or not all(type(name) is str for name in names):
        raise WireError("expected a node with alternating names and values")
    if len(set(names)) < len(names):
        raise WireError(f"a name occurs twice in the node of {shown(names)}")
    return NamedTuple(**dict(zip(names, _finish_items(values, depth), strict=True)))


def _build_array(items: list[Any], depth: int) -> NDArray[Any]:
    shape, elements = items[1:-1], items[-1]
    if type(elements) is not np.ndarray:
        raise WireError(f"expected the elements of an array last, got {shown(elements)}")
    # numpy would infer -1 from the other lengths, and read True as 1.
    if any(type(n) is not int or n < 0 for n in shape):
        raise WireError(f"expected lengths of at least 0, got {shown(shape)}")
    if not elements.size and 0 in shape:
        check_empty_shape(shape)
    try:
        return elements.reshape(shape)
    except (ValueError, OverflowError):
        raise WireError(
            f"expected the elements of an array of shape {shown(tuple(shape))}, got "
            f"{elements.size} elements"
        ) from None


def _misplaced(value: Any, depth: int) -> Any:
    got = value if isinstance(value, _Mark) else "a timestamp"
    raise WireError(f"expected a value, got {got}")


_MARKS = {TUPLE: _Mark(_build_tuple), NODE: _Mark(_build_node), ARRAY: _Mark(_build_array)}
# Types created by msgspec that need a second pass. It decodes timestamps without asking.
_FINISHERS: dict[type, Callable[[Any, int], Any]] = {
    dict: _finish_dict,
    list: _finish_list,
    _Mark: _misplaced,
    datetime.datetime: _misplaced,
}
_KINDS = frozenset(_FINISHERS)
