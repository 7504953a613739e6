"""Argument checks whose errors name the argument."""

from __future__ import annotations

import math
from numbers import Integral, Real
from time import monotonic
from typing import Any


def check_kind(name: str, value: Any, kind: Any, *, optional: bool = False) -> None:
    """Raise TypeError unless `value` is an instance of `kind`, or None where that is allowed."""
    if isinstance(value, kind) or (optional and value is None):
        return
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    or_none = " or None" if optional else ""
    got = f"the class {value.__name__}; call it" if isinstance(value, type) else repr(value)
    raise TypeError(f"{name}: expected {article} {kind.__name__}{or_none}, got {got}")


def check_integer(name: str, value: Any) -> int:
    """Return a whole number as an int. Raises TypeError for anything else."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    # A plain int, because numpy's integers take far more bytes in messages, and may overflow.
    return int(value)


def check_count(name: str, value: Any) -> int:
    """Return a whole number of at least 1 as an int. Raises TypeError or ValueError."""
    count = check_integer(name, value)
    if count < 1:
        raise ValueError(f"{name}: expected at least 1, got {count}")
    return count


def check_staleness(name: str, value: Any) -> int | None:
    """Return a limit of staleness: None, or an int of at least 0. Raises TypeError or ValueError."""
    if value is None:
        return None
    staleness = check_integer(name, value)
    if staleness < 0:
        raise ValueError(f"{name}: expected 0 or more, or None for no limit, got {staleness}")
    return staleness


def check_seconds(name: str, value: Any) -> float:
    """Return a number of seconds as a float.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is NaN. No time is later than NaN, so a wait would never end.
    """
    if not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number of seconds, got {value!r}")
    # Infinity passes. Callers must wait in slices, as system calls reject very long waits.
    seconds = float(value)
    if math.isnan(seconds):
        raise ValueError(f"{name}: expected a number of seconds, got nan")
    return seconds


def check_timeout(name: str, value: Any) -> float:
    """Return a number of seconds above 0. Raises as `check_seconds`, and ValueError for 0 or less."""
    seconds = check_seconds(name, value)
    if seconds <= 0:
        raise ValueError(f"{name}: expected a positive number of seconds, got {value}")
    return seconds


def deadline_of(name: str, timeout_s: Any) -> float:
    """Return the deadline of a wait on the `time.monotonic` clock; now for 0 seconds or less."""
    # Not the wall clock: a change of it would end a wait, or prolong it.
    return monotonic() + check_seconds(name, timeout_s)
