"""The check of an environment's observations against its space, made once and called where checks are on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.cages.brief import brief
from parllel.cages.spaces import integer_bounds
from parllel.types import Tree

LARGEST = float(np.finfo(np.float32).max)  # of what a buffer holds


class ObservationCheck:
    """Refuse observations that do not have the form that a space promises, or numbers far out of it.

    Integers have to keep to the bounds exactly, as a narrower buffer would turn others into something else.
    Floats may overstep them, as by a rounding, but not by more than the whole width of the range: what is
    beyond has another scale, such as 0 to 255 for 0 to 1. Where a range has one end, the greater of that end
    and 1 is its width. They have to be finite in 32 bits whatever the bounds are.

    Raises, when called:
        TypeError: for what is no number, a fraction for an integer, or another nesting.
        ValueError: for another shape, NaN, infinity, numbers beyond float32, or out of the bounds.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = space
        self._parts: dict[Any, ObservationCheck] = {}
        self._limits: tuple[Any, Any] | None = None
        if isinstance(space, spaces.Dict):
            self._parts = {name: ObservationCheck(inner) for name, inner in space.spaces.items()}
        elif isinstance(space, spaces.Tuple):
            self._parts = {i: ObservationCheck(inner) for i, inner in enumerate(space.spaces)}
        else:
            self._bounds = _bounds(space)
            self._limits = _limits(space, *self._bounds)

    def __call__(self, observation: Tree, what: str) -> None:
        """Check one observation; `what` is what messages call it."""
        if self._limits is None:
            self._check_parts(observation, what)
            return
        array = self._numbers(observation, what)
        low, high = self._limits
        within = (array >= low) & (array <= high)
        if not within.all():
            raise ValueError(f"{what}: expected numbers{self._wrong(array, ~within)}")

    def _wrong(self, array: NDArray[Any], beyond: NDArray[np.bool_]) -> str:
        """Say what is wrong with the first of the numbers in question."""
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
        shape = space.shape or ()
        try:
            array = np.asarray(observation)
        except ValueError as error:  # ragged
            raise ValueError(f"{what}: expected shape {shape}, got {brief(observation)}") from error
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{what}: expected numbers, got {brief(observation)}")
        if array.shape != shape:
            raise ValueError(f"{what}: expected shape {shape}, got {array.shape}")
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
        return space.low.astype(np.float64), space.high.astype(np.float64)
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return integer_bounds(space) if isinstance(space, known) else (-np.inf, np.inf)


def _limits(space: gym.Space[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Return what numbers are compared with: the bounds, or further ones for floats."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return low, high
    end = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    with np.errstate(over="ignore"):
        width = np.where(np.isfinite(high - low), high - low, np.maximum(np.abs(end), 1.0))
        limits = np.maximum(low - width, -LARGEST), np.minimum(high + width, LARGEST)
    # One number for all is quicker to compare with.
    least, greatest = (
        one.flat[0].item() if one.size and np.ptp(one) == 0.0 else one for one in limits
    )
    return least, greatest
