"""Show what an environment returned in the space of one line, for error messages."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

MOST_NUMBERS = 8  # in an array that is shown in full
MOST_PARTS = 12  # in a dict, tuple or list whose parts are shown

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


def brief(value: Any) -> str:
    """Return a short `repr`; for an array of more than 8 numbers, its dtype and shape."""
    if isinstance(value, np.ndarray):
        if value.size > MOST_NUMBERS:
            return f"an array {value.dtype} {value.shape}"
        return " ".join(repr(value).split())
    # By `type`, as subclasses, such as named tuples, have their own `repr`.
    if type(value) is dict and len(value) <= MOST_PARTS:
        return "{" + ", ".join(f"{_short.repr(k)}: {brief(v)}" for k, v in value.items()) + "}"
    if type(value) in (tuple, list) and len(value) <= MOST_PARTS:
        parts = ", ".join(map(brief, value))
        if isinstance(value, list):
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    return _short.repr(value)
