"""An environment whose cost, spread, observation and info are arguments."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class SyntheticEnv(gym.Env[NDArray[np.float32], int]):
    """Turn a loop for a while, and return an observation that was drawn beforehand.

    The work is counted in turns and not in time, so that a process without a core does not seem to work.

    Args:
        turns: of an empty Python loop per step; a turn takes about 10 ns.
        spread: 0 for equal steps, up to 1 for steps between nothing and twice `turns`.
        observation_size: float32 numbers in an observation.
        info_keys: numbers in each step's info.
        episode_steps: length of every episode.
        sleep_s: seconds that a step waits without computing, as for a simulator on another machine.
    """

    def __init__(
        self,
        turns: int = 0,
        spread: float = 0.0,
        observation_size: int = 8,
        info_keys: int = 0,
        episode_steps: int = 200,
        sleep_s: float = 0.0,
    ) -> None:
        if not 0 <= spread <= 1:
            raise ValueError(f"spread: expected 0 to 1, got {spread}")
        self.observation_space = spaces.Box(-1, 1, (observation_size,), np.float32)
        self.action_space = spaces.Discrete(2)  # type: ignore[assignment]
        self.episode_steps = episode_steps
        self._sleep_s = sleep_s
        self._keys = [f"key{i}" for i in range(info_keys)]
        generator = np.random.default_rng(0)
        self._observations = list(
            generator.uniform(-1, 1, (4, observation_size)).astype(np.float32)
        )
        factors = 1 + spread * generator.uniform(-1, 1, 997)
        self._turns = [int(turns * factor) for factor in factors]
        self._step = self._phase = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; the seed says where in its list of costs the environment begins."""
        super().reset(seed=seed)
        if seed is not None:
            self._phase = seed % len(self._turns)
        self._step = 0
        return self._observations[0], dict.fromkeys(self._keys, 0.0)

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Work; the reward is the action."""
        self._step += 1
        self._phase = (self._phase + 1) % len(self._turns)
        for _ in range(self._turns[self._phase]):
            pass
        if self._sleep_s:
            time.sleep(self._sleep_s)
        observation = self._observations[self._step % 4]
        ended = self._step >= self.episode_steps
        return observation, float(action), False, ended, dict.fromkeys(self._keys, 1.0)
