"""Tianshou's vector environments, whose user resets what has ended."""

from __future__ import annotations

from typing import Any

from tianshou.env import (  # type: ignore[import-not-found, unused-ignore]
    DummyVectorEnv,
    ShmemVectorEnv,
    SubprocVectorEnv,
)

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Rows, Workload

VECTORS = {"dummy": DummyVectorEnv, "subproc": SubprocVectorEnv, "shmem": ShmemVectorEnv}


class TianshouSide(Side):
    """The loop of its collectors. Settings: `vector`, "dummy", "subproc" or "shmem"."""

    libraries = ("tianshou", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        self._envs = VECTORS[settings["vector"]]([workload.factory()] * workload.B)
        self._actions = workload.actions()
        # What it says of its spaces is the inner environment's, without wrappers.
        env = workload.factory()()
        self._rows = Rows(workload, env.observation_space)
        env.close()
        for b, seed in enumerate(workload.seeds()):
            self._rows.observation[-1, b] = self._envs.reset([b], seed=seed)[0][0]

    def run(self) -> int:
        """Step T times; ended environments are reset before the next step."""
        envs, rows = self._envs, self._rows
        rows.begin()
        for t, action in enumerate(self._actions):
            observation, reward, terminated, truncated, _ = envs.step(action)
            rows.observation[t + 1] = observation
            rows.reward[t] = reward
            rows.terminated[t] = terminated
            rows.truncated[t] = truncated
            done = terminated | truncated
            if done.any():
                ended = done.nonzero()[0]
                for b in ended:
                    rows.final.append((t, int(b), observation[b]))
                rows.observation[t + 1, ended] = envs.reset(ended)[0]
        return rows.reward.size

    def first(self) -> dict[str, float]:
        """Sample the first batch."""
        return self._rows.trace(self.run())

    def close(self) -> None:
        """End the processes."""
        self._envs.close()
