"""Gymnasium's vector environments, and every library whose vectors have the same face."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Rows, Workload


class GymnasiumSide(Side):
    """The usual loop, into arrays that were allocated beforehand.

    Settings: `vector`, "sync" or "async"; `autoreset`, a gymnasium mode ("NextStep" is its default);
    for "async" also `shared_memory`. What `step` returns is stored at once, so it is not copied before.
    """

    libraries = ("mujoco", "ale-py", "minigrid")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        mode = AutoresetMode(settings["autoreset"])
        self._same_step = mode is AutoresetMode.SAME_STEP
        factories = [workload.factory()] * workload.B
        self._envs: Any
        if settings["vector"] == "sync":
            self._envs = SyncVectorEnv(factories, copy=False, autoreset_mode=mode)
        else:
            self._envs = AsyncVectorEnv(
                factories,
                shared_memory=settings["shared_memory"],
                copy=False,
                autoreset_mode=mode,
            )
        self._actions = workload.actions()
        self._rows = Rows(workload, self._envs.single_observation_space)
        self._rows.observation[-1] = self._envs.reset(seed=list(workload.seeds()))[0]

    def run(self) -> int:
        """Step T times; what ended and was reset in the same step is kept apart."""
        step, rows = self._envs.step, self._rows
        rows.begin()
        for t, action in enumerate(self._actions):
            observation, reward, terminated, truncated, infos = step(action)
            rows.observation[t + 1] = observation
            rows.reward[t] = reward
            rows.terminated[t] = terminated
            rows.truncated[t] = truncated
            if self._same_step and "final_obs" in infos:
                final = infos["final_obs"]
                for b in np.flatnonzero(infos["_final_obs"]):
                    rows.final.append((t, int(b), final[b]))
        return rows.reward.size if self._same_step else rows.count_without_resets()

    def first(self) -> dict[str, float]:
        """Sample the first batch."""
        return self._rows.trace(self.run())

    def close(self) -> None:
        """End the processes."""
        self._envs.close()
