"""A MiniGrid room with flat observations; operators refer to it as `room.py:make_room`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SHAPE = (7, 7, 3)  # the agent's view: object, colour and state of each cell
HIGHEST = 10  # largest of these numbers


def make_room(size: int = 6, render_mode: str | None = "rgb_array") -> gym.Env[Any, Any]:
    """Make an empty room with a goal in the corner and a random start position.

    Observations: [147] float32 in [0, 1].
    """
    room = gym.make(f"minigrid:MiniGrid-Empty-Random-{size}x{size}-v0", render_mode=render_mode)
    space = gym.spaces.Box(0.0, 1.0, (int(np.prod(SHAPE)),), np.float32)
    return gym.wrappers.TransformObservation(room, flat, space)


def flat(observation: dict[str, Any]) -> NDArray[np.float32]:
    """Return the view as a flat array."""
    row: NDArray[np.float32] = observation["image"].reshape(-1).astype(np.float32) / np.float32(
        HIGHEST
    )
    return row
