"""Argument checks of algorithms."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np


def check_positive(who: str, **arguments: float | None) -> None:
    """Check that each argument is a number above 0, or None. `who` is named in errors.

    Raises:
        TypeError: for anything but a number.
        ValueError: for 0, less, and NaN.
    """
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Real):
            raise TypeError(f"{who}: {name}: expected a number above 0, got {value!r}")
        # Not `value <= 0`, which lets NaN pass.
        if not value > 0:
            raise ValueError(f"{who}: {name}: expected a number above 0, got {value!r}")


def check_counts(who: str, **arguments: int) -> None:
    """Check that each argument is an int of at least 1. Raises TypeError or ValueError."""
    for name, value in arguments.items():
        if not isinstance(value, (int, np.integer)):
            raise TypeError(f"{who}: {name}: expected a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{who}: {name}: expected a number above 0, got {value}")


def check_seed(who: str, seed: Any) -> None:
    """Raise ValueError for a negative number. Other checks are left to numpy."""
    if isinstance(seed, (int, np.integer)) and seed < 0:
        raise ValueError(f"{who}: seed: expected 0 or more, got {seed}")


def check_not_negative(who: str, **arguments: float) -> None:
    """Check that each argument is a number of at least 0. Raises TypeError or ValueError."""
    for name, value in arguments.items():
        if not isinstance(value, Real):
            raise TypeError(f"{who}: {name}: expected a number of at least 0, got {value!r}")
        # Not `value < 0`, which lets NaN pass.
        if not value >= 0:
            raise ValueError(f"{who}: {name}: expected a number of at least 0, got {value!r}")


def check_share(who: str, **arguments: float) -> None:
    """Check that each argument is a number above 0 and at most 1. Raises TypeError or ValueError."""
    check_positive(who, **arguments)
    for name, value in arguments.items():
        if value > 1:
            raise ValueError(f"{who}: {name}: expected a number of at most 1, got {value!r}")
