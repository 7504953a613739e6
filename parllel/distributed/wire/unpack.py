"""What msgspec returns, as the tree that was sent; `pack` shows both."""

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
    """The first item of a list that stands for something else: makes that of the other items.

    When msgspec asks what a mark stands for, it has not read the other items; so there is a second pass.
    """

    __slots__ = ("build",)

    def __init__(self, build: Callable[[list[Any], int], Any]) -> None:
        self.build = build

    def __repr__(self) -> str:
        return "a mark"


def extension(code: int, payload: memoryview) -> Any:
    """Return what an extension type stands for, with memory of its own.

    Raises:
        WireError: if there is no such code, or the payload does not fit it.
    """
    dtype = DTYPES.get(code)
    if dtype is not None:
        return _elements(dtype, payload)
    mark = _MARKS.get(code)
    if mark is not None:
        if payload:
            raise WireError(f"extension {code} has no payload, got {len(payload)} bytes")
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
    raise WireError(f"extension {code} is not of this format")


def finish(value: Any, depth: int) -> Tree:
    """Return the tree of what was decoded, which it changes.

    depth: how deeply lists may be nested.

    Raises:
        WireError: if they are nested more deeply, a mark stands where it means nothing, or a key is neither
            str nor int.
    """
    finisher = _FINISHERS.get(type(value))
    return value if finisher is None else finisher(value, depth)


def _elements(dtype: np.dtype[Any], payload: memoryview) -> NDArray[Any]:
    try:
        if dtype is _FLAGS:
            # Any byte may come, but numpy computes with 0 and 1.
            flags: NDArray[Any] = np.frombuffer(payload, np.uint8) != 0
            return flags
        # A copy can be written to, lies at a proper address, and does not keep the message.
        elements: NDArray[Any] = np.frombuffer(payload, dtype).copy()
        return elements
    except ValueError:
        raise WireError(
            f"expected elements of {dtype.itemsize} bytes ({dtype}), got {len(payload)} bytes"
        ) from None


def _finish_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    if depth < 1:
        raise WireError(_TOO_DEEP)
    for key, item in value.items():
        # msgspec takes for a key whatever can be one: None, a float, even a mark.
        if type(key) is not str and not (type(key) is int and LEAST_INT <= key <= GREATEST_INT):
            raise WireError(f"expected keys that are str or int of 64 bits, got {shown(key)}")
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
    # Lists of numbers and names are long, and most of what is looked at.
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
        raise WireError("expected names and values of a node in turn")
    if len(set(names)) < len(names):
        raise WireError(f"a name occurs twice in the node of {shown(names)}")
    return NamedTuple(**dict(zip(names, _finish_items(values, depth), strict=True)))


def _build_array(items: list[Any], depth: int) -> NDArray[Any]:
    shape, elements = items[1:-1], items[-1]
    if type(elements) is not np.ndarray:
        raise WireError(f"expected the elements of an array last, got {shown(elements)}")
    # To numpy, -1 would mean what is left, and True 1.
    if any(type(n) is not int or n < 0 for n in shape):
        raise WireError(f"expected lengths of at least 0, got {shown(shape)}")
    if not elements.size and 0 in shape:
        check_empty_shape(shape)
    try:
        return elements.reshape(shape)
    except (ValueError, OverflowError):
        raise WireError(
            f"expected elements for an array of shape {shown(tuple(shape))}, got {elements.size}"
        ) from None


def _misplaced(value: Any, depth: int) -> Any:
    what = value if isinstance(value, _Mark) else "a time stamp"
    raise WireError(f"{what} stands where a value was expected")


_MARKS = {TUPLE: _Mark(_build_tuple), NODE: _Mark(_build_node), ARRAY: _Mark(_build_array)}
# What msgspec makes that is no leaf; it reads time stamps by itself.
_FINISHERS: dict[type, Callable[[Any, int], Any]] = {
    dict: _finish_dict,
    list: _finish_list,
    _Mark: _misplaced,
    datetime.datetime: _misplaced,
}
_KINDS = frozenset(_FINISHERS)
