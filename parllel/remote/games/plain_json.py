"""Values as JSON has them, in memory of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_DEEPEST = 64  # as parllel.wire
_SCALARS = frozenset((int, str, bool, type(None)))


def plain_json(value: Any, depth: int = _DEEPEST) -> Any:
    """Return a copy made of None, bool, int, float, str, list and dict; numpy's values become these.

    Raises:
        ValueError: if there is something else in it, NaN or an infinity, a key that is no str, or too much
            inside of each other.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is float:
        return _finite(value)
    if depth < 1:
        raise ValueError(f"expected JSON at most {_DEEPEST} deep; perhaps a value holds itself")
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _SCALARS else plain_json(item, depth - 1) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"expected keys that are str, got {str(key)[:100]!r}")
        return {str(key): plain_json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufU":
        return plain_json(value.tolist(), depth - 1)
    # Subclasses of what JSON has, such as an IntEnum, as what they are.
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain_json(plain(value), depth - 1)
    raise ValueError(f"expected JSON values, got {kind.__module__}.{kind.__qualname__}")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"expected finite numbers, got {value}")
    return value
