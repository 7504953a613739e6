"""An environment whose 256 x 256 frame costs nothing to draw. Workers execute this file."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

SIZE, TILE = 256, 32


class FrameEnv(gym.Env[Any, Any]):
    """Episodes without an end, with pictures of a grid in a few colours, as MiniGrid draws them."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    render_mode = "rgb_array"

    def __init__(self) -> None:
        rows, columns = np.indices((SIZE, SIZE))
        self._picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        self._picture[(rows % TILE == 0) | (columns % TILE == 0)] = 100
        self._picture[(rows < TILE) | (columns < TILE)] = 146
        goal = (rows // TILE == 6) & (columns // TILE == 6)
        self._picture[goal] = (0, 255, 0)
        agent = (rows // TILE == 3) & (abs(columns - 112) < (rows - 96) // 2)
        self._picture[agent] = (255, 0, 0)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin again."""
        super().reset(seed=seed)
        self._step = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the picture."""
        self._step += 1
        return 0, 0.0, False, False, {}

    def render(self) -> Any:
        """Return the picture."""
        return np.roll(self._picture, self._step, axis=1)


def make_frames() -> gym.Env[Any, Any]:
    """Return the environment."""
    return FrameEnv()
