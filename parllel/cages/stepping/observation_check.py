"""Checks of observations against their space, with one-line descriptions of wrong values."""

from __future__ import annotations

import reprlib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.cages.spaces import integer_bounds
from parllel.types import Tree

LARGEST = float(np.finfo(np.float32).max)  # buffers hold float32
_MAX_NUMBERS = 8  # of an array that is shown in full
_MAX_PARTS = 12  # of a dict, tuple or list whose parts are shown
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


class ObservationCheck:
    """Rejects observations with a wrong structure or numbers far out of bounds. Created once per space.

    Integers must be within the bounds, as others might wrap around in a narrower buffer. Floats may exceed
    the bounds, as after rounding, but by no more than the width of the range: numbers further out have a
    different scale, such as 0 to 255 instead of 0 to 1. The width of a range with one bound is the magnitude
    of that bound, but at least 1. Floats must be finite as float32, whatever the bounds.

    Args:
        space: observation space of one environment.
        batch: leading shape, (n,) for the observations of n environments in one array.

    Raises, when called:
        TypeError: if a part is not a number, or a fraction instead of an integer.
        ValueError: for a wrong nesting or shape, NaN, infinity, or numbers beyond float32 or the bounds.
    """

    def __init__(self, space: gym.Space[Any], batch: tuple[int, ...] = ()) -> None:
        self._space, self._batch = space, batch
        # Computed once: spaces do not change, and checks run in every step of an episode.
        self._parts: dict[Any, ObservationCheck] = {}
        self._limits: tuple[Any, Any] | None = None
        if isinstance(space, spaces.Dict):
            self._parts = {
                name: ObservationCheck(inner, batch) for name, inner in space.spaces.items()
            }
        elif isinstance(space, spaces.Tuple):
            self._parts = {
                i: ObservationCheck(inner, batch) for i, inner in enumerate(space.spaces)
            }
        else:
            self._bounds = _bounds(space)
            self._limits = _limits(space, *self._bounds)
            self._any_of = _all_within(space, *self._bounds)

    def __call__(self, observation: Tree, what: str) -> None:
        """Check one observation; `what` names it in messages."""
        if self._limits is None:
            self._check_parts(observation, what)
            return
        # Numbers, lists and other libraries' arrays are fine if numpy reads them, as a buffer then does too.
        array = self._numbers(observation, what)
        # The test for None matters: numpy's dtype == None compares with float64.
        if self._any_of is not None and array.dtype == self._any_of:
            return
        low, high = self._limits
        # NaN fails too, as comparisons with it are false.
        within = (array >= low) & (array <= high)
        if not within.all():
            raise ValueError(f"{what}: expected numbers{self._wrong(array, ~within)}")

    def _wrong(self, array: NDArray[Any], beyond: NDArray[np.bool_]) -> str:
        """Build the end of the message, for the first number out of bounds."""
        index = tuple(int(i) for i in np.argwhere(beyond)[0])
        at = f" at {index[0] if len(index) == 1 else index}" if index else ""
        value = array[index]
        if np.isnan(value):
            return f", got NaN{at}"
        if abs(float(value)) > LARGEST:
            return f" that are finite as float32, got {value}{at}"
        low, high = np.min(self._bounds[0]), np.max(self._bounds[1])
        return f" from {low} to {high}, got {value}{at}"

    def _numbers(self, observation: Tree, what: str) -> NDArray[Any]:
        space = self._space
        shape = (*self._batch, *(space.shape or ()))
        try:
            array = np.asarray(observation)
        except ValueError as error:  # lists of different lengths
            raise ValueError(f"{what}: expected shape {shape}, got {brief(observation)}") from error
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{what}: expected numbers, got {brief(observation)}")
        # Before the bounds, with which a wrong shape might broadcast.
        if array.shape != shape:
            raise ValueError(f"{what}: expected shape {shape}, got {array.shape}")
        # numpy would silently truncate fractions in a buffer of integers.
        if array.dtype.kind == "f" and space.dtype is not None and space.dtype.kind in "biu":
            raise TypeError(f"{what}: expected dtype {space.dtype}, got {array.dtype}")
        return array

    def _check_parts(self, observation: Tree, what: str) -> None:
        if isinstance(self._space, spaces.Tuple):
            if not isinstance(observation, tuple) or len(observation) != len(self._parts):
                raise ValueError(
                    f"{what}: expected {len(self._parts)} parts, got {brief(observation)}"
                )
        elif not isinstance(observation, dict) or set(observation) != set(self._parts):
            raise ValueError(
                f"{what}: expected keys {sorted(self._parts)}, got {brief(observation)}"
            )
        for name, check in self._parts.items():
            check(observation[name], f"{what}[{name!r}]")


def _bounds(space: gym.Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        # As float64, since the width of a float32 range could overflow.
        return space.low.astype(np.float64), space.high.astype(np.float64)
    # A user's own class of space may have any bounds, or none.
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return integer_bounds(space) if isinstance(space, known) else (-np.inf, np.inf)


def _all_within(space: gym.Space[Any], low: Any, high: Any) -> np.dtype[Any] | None:
    """Return the dtype of a space that allows all its values, as image spaces do; None for other spaces."""
    if space.dtype is None or space.dtype.kind not in "iu":
        return None
    limits = np.iinfo(space.dtype)
    whole = np.all(np.equal(low, limits.min)) and np.all(np.equal(high, limits.max))
    return space.dtype if whole else None


def _limits(space: gym.Space[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Return the accepted range: the bounds, widened for floats."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return low, high
    end = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    # For a float64 Box even these may overflow, to infinity, which the next line treats as unbounded.
    with np.errstate(over="ignore"):
        width = np.where(np.isfinite(high - low), high - low, np.maximum(np.abs(end), 1.0))
        limits = np.maximum(low - width, -LARGEST), np.minimum(high + width, LARGEST)
    # Comparing with a number is faster than with an array.
    least, greatest = (
        one.flat[0].item() if one.size and np.ptp(one) == 0.0 else one for one in limits
    )
    return least, greatest


def brief(value: Any) -> str:
    """Return a short `repr`; for an array of more than 8 numbers, its dtype and shape."""
    if isinstance(value, np.ndarray):
        if value.size > _MAX_NUMBERS:
            return f"an array {value.dtype} {value.shape}"
        return " ".join(repr(value).split())
    # By exact type, as subclasses such as named tuples have their own `repr`.
    if type(value) is dict and len(value) <= _MAX_PARTS:
        return "{" + ", ".join(f"{_short.repr(k)}: {brief(v)}" for k, v in value.items()) + "}"
    if type(value) in (tuple, list) and len(value) <= _MAX_PARTS:
        parts = ", ".join(map(brief, value))
        if isinstance(value, list):
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    return _short.repr(value)
