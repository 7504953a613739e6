"""How error messages show what an environment returned."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

MOST_NUMBERS = 8  # of an array that is shown in full
MOST_PARTS = 12  # of a dict, tuple or list

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


def brief(value: Any) -> str:
    """Return a `repr` of one line's length: of an array that is not small, its dtype and shape."""
    if isinstance(value, np.ndarray):
        if value.size > MOST_NUMBERS:
            return f"an array {value.dtype} {value.shape}"
        return " ".join(repr(value).split())
    # Subclasses, such as named tuples, have a form of their own.
    if type(value) is dict and len(value) <= MOST_PARTS:
        return "{" + ", ".join(f"{_short.repr(k)}: {brief(v)}" for k, v in value.items()) + "}"
    if type(value) in (tuple, list) and len(value) <= MOST_PARTS:
        parts = ", ".join(map(brief, value))
        if isinstance(value, list):
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    return _short.repr(value)
