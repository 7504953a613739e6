"""Conversion of agents' actions to plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from parllel.distributed.wire.limits import n_nested
from parllel.distributed.wire.wire_error import WireError

_DEEPEST = 64
_MAX_ITEMS = 1_000_000
_MAX_BITS = 3000  # of an int, as parse_json accepts at most 1,000 digits


def plain(value: Any) -> Any:
    """Convert a value to None, bool, int, float, str, and lists and dicts of these.

    Lists and dicts are copied.

    value: a value of one of these types, a tuple, or a numpy scalar or array. Dicts must have str
        keys.

    Raises:
        WireError: for any other value, such as a set, NaN or a list that contains itself. Names its
            path.
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
    return WireError(
        f"values are nested more than {_DEEPEST} levels deep; perhaps one contains itself"
    )


def _is_row(values: Any) -> bool:
    """Return whether all values are plain numbers of one type, which need no conversion."""
    # Fast path for boards and observations, where most time would be spent; its loops run in C.
    kinds = set(map(type, values))
    if kinds == {int}:
        return bool(min(values) >= -(1 << 63) and max(values) < 1 << 63)
    return kinds == {bool} or (kinds == {float} and all(map(math.isfinite, values)))


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        if value.dtype.kind not in "biufU" or _is_long(value.dtype):
            raise WireError(f"expected a number or text, got a scalar of {value.dtype}")
        value = value.item()
    # Subclasses are converted as well: other processes do not know the members of an IntEnum.
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
    """Return whether a dtype is a long double, which numpy does not convert to float."""
    return dtype.kind == "f" and dtype.itemsize > 8


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise WireError("expected text, got a lone surrogate") from None
    return text


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise WireError(f"expected keys of type str, got {type(key).__name__}")
    return _text(str(key))


def _array(value: np.ndarray[Any, Any], left: list[int]) -> Any:
    if value.dtype.kind not in "biuf" or _is_long(value.dtype):
        raise WireError(f"expected an array of numbers, got one of {value.dtype}")
    # Counts the resulting lists as well, since an empty array may have millions of rows.
    _count(left, n_nested(value.shape))
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise WireError("expected finite numbers, got an array with NaN or infinity")
    return value.tolist()
