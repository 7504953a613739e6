"""Check observations against the space of their environment, and show in one line what came instead."""

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
_MAX_NUMBERS = 8  # in an array that is shown in full
_MAX_PARTS = 12  # in a dict, tuple or list whose parts are shown
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


class ObservationCheck:
    """A check, made once per space, that refuses observations of another form or far out of bounds.

    Integers must be within the bounds, as others might wrap around in a narrower buffer. Floats may exceed
    the bounds, as after rounding, but by no more than the width of the range: numbers further out have
    another scale, such as 0 to 255 instead of 0 to 1. The width of a range with one bound is the magnitude of
    that bound, or 1 if that is greater. Floats must be finite as float32, whatever the bounds.

    Args:
        space: of one environment.
        batch: the shape before that of the space, (n,) for the observations of n environments in one array.

    Raises, when called:
        TypeError: if a part is not a number, or a fraction instead of an integer.
        ValueError: for another nesting or shape, NaN, infinity, or numbers beyond float32 or the bounds.
    """

    def __init__(self, space: gym.Space[Any], batch: tuple[int, ...] = ()) -> None:
        self._space, self._batch = space, batch
        # Made once: the spaces of an environment do not change, and checks run in every step of an episode.
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
        """Check one observation, which messages call `what`."""
        if self._limits is None:
            self._check_parts(observation, what)
            return
        # A number, a list or another library's array: whatever numpy reads, and a buffer therefore takes.
        array = self._numbers(observation, what)
        # Not compared with None, which numpy takes for float64.
        if self._any_of is not None and array.dtype == self._any_of:
            return
        low, high = self._limits
        # Comparisons with NaN are false, so NaN is not within either.
        within = (array >= low) & (array <= high)
        if not within.all():
            raise ValueError(f"{what}: expected numbers{self._wrong(array, ~within)}")

    def _wrong(self, array: NDArray[Any], beyond: NDArray[np.bool_]) -> str:
        """Return the end of the message, about the first number that is out of bounds."""
        index = tuple(int(i) for i in np.argwhere(beyond)[0])
        at = f" at {index[0] if len(index) == 1 else index}" if index else ""
        value = array[index]
        if np.isnan(value):
            return f", got NaN{at}"
        if abs(float(value)) > LARGEST:
            return f" that are finite in 32 bits, got {value}{at}"
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
        # Before the bounds, against which a wrong shape would be broadcast.
        if array.shape != shape:
            raise ValueError(f"{what}: expected shape {shape}, got {array.shape}")
        # Into a buffer of integers numpy cuts fractions without a word.
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
        # As float64, or the width of a range of float32 could overflow.
        return space.low.astype(np.float64), space.high.astype(np.float64)
    # A space of a user's own class may have any bounds, or none.
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return integer_bounds(space) if isinstance(space, known) else (-np.inf, np.inf)


def _all_within(space: gym.Space[Any], low: Any, high: Any) -> np.dtype[Any] | None:
    """Return the dtype of a space whose bounds hold all numbers of it, as those of pictures do."""
    if space.dtype is None or space.dtype.kind not in "iu":
        return None
    limits = np.iinfo(space.dtype)
    whole = np.all(np.equal(low, limits.min)) and np.all(np.equal(high, limits.max))
    return space.dtype if whole else None


def _limits(space: gym.Space[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Return the limits for numbers: the bounds, or wider ones for floats."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return low, high
    end = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    # For a Box of float64 even these overflow: to infinity, which the next line treats as unbounded.
    with np.errstate(over="ignore"):
        width = np.where(np.isfinite(high - low), high - low, np.maximum(np.abs(end), 1.0))
        limits = np.maximum(low - width, -LARGEST), np.minimum(high + width, LARGEST)
    # Comparing with one number is quicker than with an array.
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
    # By `type`, as subclasses, such as named tuples, have their own `repr`.
    if type(value) is dict and len(value) <= _MAX_PARTS:
        return "{" + ", ".join(f"{_short.repr(k)}: {brief(v)}" for k, v in value.items()) + "}"
    if type(value) in (tuple, list) and len(value) <= _MAX_PARTS:
        parts = ", ".join(map(brief, value))
        if isinstance(value, list):
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    return _short.repr(value)
