"""An environment that dies at random, in a module that workers import quickly."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import gymnasium as gym

from parllel.testing.faulty_envs import FAULTS

HANGS = 0.003  # the share of deaths that are hangs, each of which takes the time-out


class MortalEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Dies in a step with a given probability, after adding a letter to a file."""

    def __init__(self, folder: Path, probability: float) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._file, self._probability = folder / "deaths", probability
        self._random = random.Random(os.getpid())

    def step(self, action: Any) -> Any:
        """Step, or die."""
        if self._random.random() < self._probability:
            hangs = self._random.random() < HANGS
            fault = "hang" if hangs else self._random.choice(["exit", "kill", "segfault"])
            # One write, so that those of several processes do not mix.
            with self._file.open("ab", buffering=0) as file:
                file.write(fault[0].encode())
            FAULTS[fault]()
        return self.env.step(action)
