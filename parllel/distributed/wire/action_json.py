"""JSON values as actions, as environments are given them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from parllel.distributed.wire.space_bounds import check_bounds
from parllel.distributed.wire.space_json import from_json
from parllel.types import Tree


def action_from_json(space: gym.Space[Any], values: Any, *, clip: bool = False) -> Tree:
    """Return the action of a space that JSON values stand for, as cages would hand it to an environment.

    As `from_json`, with a Python int for Discrete; arrays are new.

    clip: whether numbers outside of a Box become its bounds, as cages do with what an agent chooses: a
        Gaussian policy exceeds every bound now and then. People are refused, as they can be asked again.

    Raises:
        WireError: names the path of what is not in the space: `force[1]: expected ..., got ...`.
    """
    action = _given(space, from_json(space, values), clip)
    check_bounds(space, action)
    return action


def _given(space: gym.Space[Any], value: Any, clip: bool) -> Tree:
    if isinstance(space, spaces.Discrete):
        return int(value)
    if isinstance(space, spaces.Dict):
        return {name: _given(part, value[name], clip) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_given(part, v, clip) for part, v in zip(space.spaces, value, strict=True))
    if clip and isinstance(space, spaces.Box):
        # In place: numpy makes scalars of arrays without dimensions. NaN stays NaN, and is refused.
        np.minimum(value, space.high, out=value)
        np.maximum(value, space.low, out=value)
    return value
