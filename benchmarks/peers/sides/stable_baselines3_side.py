"""Stable-Baselines3's vector environments, which reset within the step."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.vec_env import (  # type: ignore[import-not-found, unused-ignore]
    DummyVecEnv,
    SubprocVecEnv,
)

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Rows, Workload


class StableBaselines3Side(Side):
    """The loop of its rollouts. Settings: `vector`, "dummy" or "subproc"; `start_method` for the latter."""

    libraries = ("stable-baselines3", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        factories = [workload.factory()] * workload.B
        self._envs: Any
        if settings["vector"] == "dummy":
            self._envs = DummyVecEnv(factories)
        else:
            self._envs = SubprocVecEnv(factories, start_method=settings["start_method"])
        self._actions = workload.actions()
        self._rows = Rows(workload, self._envs.observation_space)
        # Seeds for each environment of its own; `seed()` would count up from one.
        self._envs._seeds = list(workload.seeds())
        self._rows.observation[-1] = self._envs.reset()

    def run(self) -> int:
        """Step T times; truncation and final observations are in the infos."""
        step, rows = self._envs.step, self._rows
        rows.begin()
        for t, action in enumerate(self._actions):
            observation, reward, done, infos = step(action)
            rows.observation[t + 1] = observation
            rows.reward[t] = reward
            rows.terminated[t] = done
            rows.truncated[t] = False
            if done.any():
                for b in done.nonzero()[0]:
                    rows.final.append((t, int(b), infos[b]["terminal_observation"]))
                    if infos[b]["TimeLimit.truncated"]:
                        rows.terminated[t, b], rows.truncated[t, b] = False, True
        return rows.reward.size

    def first(self) -> dict[str, float]:
        """Sample the first batch."""
        return self._rows.trace(self.run())

    def close(self) -> None:
        """End the processes."""
        self._envs.close()
