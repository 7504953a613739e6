"""Checks of what an environment returns: on during its first episode, where most mistakes show."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.types import Tree


def check_observation(space: gym.Space[Any], observation: Tree, what: str) -> None:
    """Raise TypeError or ValueError unless `observation` has the form that `space` promises."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        _check_node(space, observation, what)
        return
    try:
        array = np.asarray(observation)
    except ValueError as error:  # ragged
        raise ValueError(f"{what}: expected shape {space.shape}, got {observation!r}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{what}: expected numbers, got {observation!r}")
    if array.shape != (space.shape or ()):
        raise ValueError(f"{what}: expected shape {space.shape}, got {array.shape}")
    if array.dtype.kind == "f" and space.dtype is not None and space.dtype.kind in "biu":
        raise TypeError(f"{what}: expected dtype {space.dtype}, got {array.dtype}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"{what}: expected numbers, got NaN in {array}")
    _check_bounds(space, array, what)


def _check_bounds(space: gym.Space[Any], array: NDArray[Any], what: str) -> None:
    """Refuse integers out of bounds, which a narrower buffer would turn into others.

    Bounds of floats are not checked: environments overstep them by a rounding.
    """
    low: Any
    high: Any
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        n = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low, high = space.start, space.start + n - 1
    elif isinstance(space, spaces.Box) and space.dtype.kind in "biu":
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        return
    if (array < low).any() or (array > high).any():
        raise ValueError(
            f"{what}: expected numbers from {np.min(low)} to {np.max(high)}, got {array}"
        )


def _check_node(space: spaces.Dict | spaces.Tuple[Any], observation: Tree, what: str) -> None:
    if isinstance(space, spaces.Tuple):
        if not isinstance(observation, tuple) or len(observation) != len(space.spaces):
            raise ValueError(f"{what}: expected {len(space.spaces)} parts, got {observation!r}")
        for i, (inner, part) in enumerate(zip(space.spaces, observation, strict=True)):
            check_observation(inner, part, f"{what}[{i}]")
        return
    if not isinstance(observation, dict) or set(observation) != set(space.spaces):
        raise ValueError(f"{what}: expected keys {sorted(space.spaces)}, got {observation!r}")
    for name, inner in space.spaces.items():
        check_observation(inner, observation[name], f"{what}[{name!r}]")


def check_step(result: Any, name: str) -> None:
    """Raise TypeError or ValueError unless `result` is what Gymnasium's `step` promises."""
    if not isinstance(result, tuple) or len(result) != 5:
        raise TypeError(
            f"{name}: step: expected (observation, reward, terminated, truncated, info), "
            f"got {result!r}"
        )
    _, reward, terminated, truncated, info = result
    number = np.asarray(reward)
    if number.ndim or number.dtype.kind not in "biuf":
        raise TypeError(f"{name}: reward: expected a number, got {reward!r}")
    if np.isnan(number):
        raise ValueError(f"{name}: reward: expected a number, got NaN")
    for what, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name}: {what}: expected a bool, got {flag!r}")
    if not isinstance(info, dict):
        raise TypeError(f"{name}: info: expected a dict, got {info!r}")


def check_reset(result: Any, name: str) -> None:
    """Raise TypeError unless `result` is what Gymnasium's `reset` promises."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise TypeError(f"{name}: reset: expected (observation, info), got {result!r}")
