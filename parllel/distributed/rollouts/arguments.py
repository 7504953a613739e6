"""Check arguments, so that an error names the argument and not a line that could not use it."""

from __future__ import annotations

import math
from numbers import Integral, Real
from time import monotonic
from typing import Any


def check_kind(name: str, value: Any, kind: Any, *, optional: bool = False) -> None:
    """Raise TypeError unless `value` is of a class, or None if that may be."""
    if isinstance(value, kind) or (optional and value is None):
        return
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    or_none = " or None" if optional else ""
    got = f"the class {value.__name__}; call it" if isinstance(value, type) else repr(value)
    raise TypeError(f"{name}: expected {article} {kind.__name__}{or_none}, got {got}")


def check_integer(name: str, value: Any) -> int:
    """Return a whole number as an int; raise TypeError if it is none."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    return int(value)


def check_count(name: str, value: Any) -> int:
    """Return a whole number as an int; raise TypeError if it is none, ValueError if it is less than one."""
    count = check_integer(name, value)
    if count < 1:
        raise ValueError(f"{name}: expected at least 1, got {count}")
    return count


def check_staleness(name: str, value: Any) -> int | None:
    """Return a limit of staleness; raise TypeError or ValueError unless it is None, or 0 or more."""
    if value is None:
        return None
    staleness = check_integer(name, value)
    if staleness < 0:
        raise ValueError(f"{name}: expected 0 or more, or None for no limit, got {staleness}")
    return staleness


def check_seconds(name: str, value: Any) -> float:
    """Return a number of seconds as a float.

    Raises:
        TypeError: if it is no number.
        ValueError: if it is NaN: no time is ever later than that, so a wait would not end.
    """
    if not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number of seconds, got {value!r}")
    seconds = float(value)
    if math.isnan(seconds):
        raise ValueError(f"{name}: expected a number of seconds, got nan")
    return seconds


def check_timeout(name: str, value: Any) -> float:
    """Return a number of seconds above 0; raise as `check_seconds`, and ValueError for others."""
    seconds = check_seconds(name, value)
    if seconds <= 0:
        raise ValueError(f"{name}: expected a positive number of seconds, got {value}")
    return seconds


def deadline_of(name: str, timeout_s: Any) -> float:
    """Return when a wait ends, by `time.monotonic`: at once if it is of 0 seconds or less."""
    return monotonic() + check_seconds(name, timeout_s)
