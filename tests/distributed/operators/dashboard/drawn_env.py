"""An environment that draws pictures of 256 x 256 at a moderate cost, with episodes of 200 steps."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

SIZE, N_STEPS, N_BALLS = 256, 200, 12


class DrawnEnv(gym.Env):
    """Balls that move over a plain ground."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        self._rows, self._columns = np.mgrid[:SIZE, :SIZE]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._n_steps = 0
        self._places = self.np_random.integers(0, SIZE, (N_BALLS, 2))
        self._colours = self.np_random.integers(0, 256, (N_BALLS, 3), dtype=np.uint8)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self._n_steps += 1
        self._places = (self._places + [(1, 0), (0, 1), (3, 0), (0, 3)][int(action)]) % SIZE
        return np.zeros(4, np.float32), 1.0, self._n_steps >= N_STEPS, False, {}

    def render(self):
        picture = np.full((SIZE, SIZE, 3), 32, np.uint8)
        for (row, column), colour in zip(self._places, self._colours, strict=True):
            near = (self._rows - row) ** 2 + (self._columns - column) ** 2 < 200
            picture[near] = colour
        return picture


def make(render_mode=None):
    return DrawnEnv(render_mode)
