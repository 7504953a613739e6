"""Actions as plain JSON values, whatever an agent made them of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from parllel.distributed.wire.limits import n_nested
from parllel.distributed.wire.wire_error import WireError

_DEEPEST = 64
_MAX_ITEMS = 1_000_000
_MAX_BITS = 3000  # of an int: parse_json reads no more than 1,000 digits


def plain(value: Any) -> Any:
    """Return None, bool, int, float, str, and lists and dicts of these that mean the same.

    value: these, tuples, and numbers and arrays of numpy; dicts have keys that are str. Lists and dicts are
        copied.

    Raises:
        WireError: names the path of anything else, such as a set, a NaN or a list that holds itself.
    """
    kind = type(value)
    if value is None or kind is bool or (kind is int and -(1 << 63) <= value < (1 << 63)):
        return value
    return _plain(value, _DEEPEST, [_MAX_ITEMS])


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    _count(left, 1)
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return _scalar(value)
    if depth < 1:
        raise _too_deep()
    if isinstance(value, np.ndarray):
        if value.ndim > depth:
            raise _too_deep()
        return _array(value, left)
    items: list[tuple[Any, Any]] = []
    if isinstance(value, (list, tuple)):
        if _is_row(value):
            _count(left, len(value))
            return list(value)
        items = list(enumerate(value))
    elif isinstance(value, Mapping):
        items = list(value.items())
    else:
        kind = type(value)
        raise WireError(
            f"expected JSON values or arrays, got {kind.__module__}.{kind.__qualname__}"
        )
    made = []
    for key, item in items:
        try:
            made.append(_plain(item, depth - 1, left))
        except WireError as error:
            raise error.under(key) from None
    if not isinstance(value, Mapping):
        return made
    return {_key(key): item for (key, _), item in zip(items, made, strict=True)}


def _count(left: list[int], n: int) -> None:
    left[0] -= n
    if left[0] < 0:
        raise WireError(f"expected at most {_MAX_ITEMS} values")


def _too_deep() -> WireError:
    return WireError(f"values are nested more than {_DEEPEST} deep; perhaps one holds itself")


def _is_row(values: Any) -> bool:
    """Return whether these are numbers of one kind, none of which has to be looked at by itself."""
    # Boards and observations, in which most of the time would be spent; these loops are not Python's.
    kinds = set(map(type, values))
    if kinds == {int}:
        return bool(min(values) >= -(1 << 63) and max(values) < 1 << 63)
    return kinds == {bool} or (kinds == {float} and all(map(math.isfinite, values)))


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        if value.dtype.kind not in "biufU" or _is_long(value.dtype):
            raise WireError(f"expected a number or text, got one of {value.dtype}")
        value = value.item()
    # Subclasses too: members of an IntEnum are numbers that other processes do not know.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise WireError(f"expected an int of at most {_MAX_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise WireError(f"expected a finite number, got {float(value)}")
        return float(value)
    return _text(str(value))


def _is_long(dtype: np.dtype[Any]) -> bool:
    """Return whether these are long doubles, of which numpy makes no float."""
    return dtype.kind == "f" and dtype.itemsize > 8


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise WireError("expected text, got half of a surrogate pair") from None
    return text


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise WireError(f"expected keys that are str, got {type(key).__name__}")
    return _text(str(key))


def _array(value: np.ndarray[Any, Any], left: list[int]) -> Any:
    if value.dtype.kind not in "biuf" or _is_long(value.dtype):
        raise WireError(f"expected an array of numbers, got one of {value.dtype}")
    # The lists that it becomes too: there may be millions of them without an element.
    _count(left, n_nested(value.shape))
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise WireError("expected finite numbers, got an array with others")
    return value.tolist()
