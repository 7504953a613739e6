"""Argument checks of algorithms, and of functions that make their agents."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from parllel.cages.spaces import Spaces
from parllel.seeding import Seeds


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


def check_not_seeds(who: str, seed: Any) -> None:
    """Raise TypeError for Seeds, which `agent_for` takes, where one seed is expected."""
    if isinstance(seed, Seeds):
        raise TypeError(f'{who}: seed: expected an int, got {seed!r}; give seeds.integer("a name")')


def check_seed(who: str, seed: Any) -> None:
    """Raise ValueError for a negative number, TypeError for Seeds. Other checks are left to numpy."""
    check_not_seeds(who, seed)
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


def check_spaces_and_seeds(who: str, spaces: Any, seeds: Any, hidden_sizes: Any) -> None:
    """Raise TypeError for arguments of the wrong type. `who` is named in errors."""
    if not isinstance(spaces, Spaces):
        raise TypeError(
            f"{who}: spaces: expected Spaces, got a {type(spaces).__name__}; give cages[0].spaces"
        )
    if not isinstance(seeds, Seeds):
        raise TypeError(f"{who}: seeds: expected Seeds, got {seeds!r}; give those of the cages")
    sizes = () if hidden_sizes is None else hidden_sizes
    if not isinstance(sizes, Sequence) or not all(
        isinstance(size, (int, np.integer)) for size in sizes
    ):
        raise TypeError(f"{who}: hidden_sizes: expected ints, as in (64, 64), got {hidden_sizes!r}")


def shape_of(shape: int | Sequence[int], what: str) -> tuple[int, ...]:
    """Return a shape as a tuple. An int n means (n,), as in numpy.

    Raises:
        TypeError: for any other value. The message begins with `what`.
    """
    try:
        return tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        raise TypeError(f"{what}: expected a shape such as (3,) or 3, got {shape!r}") from None
