"""Environments that operators of these tests name by this file."""

from __future__ import annotations

import enum
import time

import gymnasium
import numpy as np
from gymnasium import spaces

SLOW_S = 5.0
REWARDS = (1.0, -1.0, 10.0)


class Actions(enum.IntEnum):
    """What the actions of Squares are called."""

    stay = 0
    left = 1
    right = 2


class Squares(gymnasium.Env):
    """A picture that says by its colours which step of which seed it is; a reward for each action."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Box(0.0, 1000.0, (1,), np.float32)
    action_space = spaces.Discrete(3)
    actions = Actions

    def __init__(self, *, step_s=0.0, length=1000, render_mode=None):
        self.render_mode = render_mode
        self._step_s, self._length = step_s, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._seed, self._step = seed or 0, 0
        return self._observation(), {}

    def step(self, action):
        time.sleep(self._step_s)
        self._step += 1
        return self._observation(), REWARDS[action], self._step >= self._length, False, {}

    def render(self):
        return picture(self._seed, self._step)

    def _observation(self):
        return np.array([self._step], np.float32)


def picture(seed, step):
    """Return the picture of a step: [24, 32, 3] uint8."""
    return np.random.default_rng([seed, step]).integers(0, 256, (24, 32, 3), np.uint8)


def squares(render_mode=None, **options):
    """Return an environment that steps at once."""
    return Squares(render_mode=render_mode, **options)


def slow(render_mode=None):
    """Return an environment that takes five seconds for a step."""
    return Squares(step_s=SLOW_S, render_mode=render_mode)


def lean(observation):
    """Push CartPole's cart to where its pole falls."""
    return int(observation[2] + observation[3] > 0)
