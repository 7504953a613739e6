"""The ideal: bare loops over the same environments, a process a core, no framework and no stores."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Workload, stored_dtype


class IdealSide(Side):
    """Step one share of the environments.

    Settings: `share` and `shares`, which of how many; `core`, to be pinned to, or null.
    """

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        core = settings.get("core")
        if core is not None:
            os.sched_setaffinity(0, {core})
        columns = np.array_split(np.arange(workload.B), settings["shares"])[settings["share"]]
        make_env = workload.factory()
        seeds, actions = workload.seeds(), workload.actions()
        self._envs = [make_env() for _ in columns]
        for env, b in zip(self._envs, columns, strict=True):
            env.reset(seed=seeds[b])
        # A step method and an action for each step of a batch, in the order in which they are called.
        discrete = isinstance(self._envs[0].action_space, spaces.Discrete)
        self._rows: list[list[Any]] = []
        for t in range(workload.T):
            row = actions[t, columns]
            self._rows.append(row.tolist() if discrete else list(row))
        self._calls = [(env.step, env.reset) for env in self._envs]
        self._n = workload.T * len(columns)
        gc.collect()
        gc.freeze()
        gc.disable()

    def run(self) -> int:
        """Step and reset; everything that is returned is dropped."""
        calls = self._calls
        for actions in self._rows:
            for (step, reset), action in zip(calls, actions):  # noqa: B905 (costs time)
                _, _, terminated, truncated, _ = step(action)
                if terminated or truncated:
                    reset()
        return self._n

    def first(self) -> dict[str, float]:
        """Do what `run` does, and keep account."""
        trace = {"steps": float(self._n), "reward": 0.0, "observation": 0.0, "ended": 0.0}
        for actions in self._rows:
            for (step, reset), action in zip(self._calls, actions, strict=True):
                observation, reward, terminated, truncated, _ = step(action)
                trace["reward"] += float(np.float32(reward))  # type: ignore[arg-type]
                if terminated or truncated:
                    trace["ended"] += 1
                    observation, _ = reset()
                stored = observation.astype(stored_dtype(observation.dtype))
                trace["observation"] += float(stored.sum(dtype=np.float64))
        return trace

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
