"""Environments whose process ends, each a given number of times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

from parllel.testing.faulty_envs import FAULTS


class CrashingEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Crashes in step `at` of its process, until `folder` holds a file for each of `times` crashes.

    Args:
        make: makes the environment.
        folder: an empty folder, which outlives the processes.
        fault: a key of `FAULTS`.
        phase: "step" or "reset", of which `at` is counted from 1.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        folder: Path,
        fault: str = "exit",
        at: int = 1,
        times: int = 1,
        phase: str = "step",
    ) -> None:
        super().__init__(make())
        self._folder, self._fault, self._times = folder, fault, times
        self._left = {phase: at}

    def _enter(self, phase: str) -> None:
        if phase not in self._left:
            return
        self._left[phase] -= 1
        crashes = len(list(self._folder.iterdir()))
        if self._left[phase] == 0 and crashes < self._times:
            (self._folder / str(crashes)).touch()
            FAULTS[self._fault]()

    def reset(self, **options: Any) -> Any:
        """Reset, or crash."""
        self._enter("reset")
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Step, or crash."""
        self._enter("step")
        return self.env.step(action)
