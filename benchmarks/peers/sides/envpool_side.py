"""EnvPool: environments in C++, so no peer of Python ones; listed apart. By its own loops, and in a cage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import envpool  # type: ignore[import-not-found, unused-ignore]
import numpy as np
from gymnasium import spaces

from benchmarks.peers.side import Side
from benchmarks.peers.sides.parllel_side import ParllelSide
from benchmarks.peers.workload import Rows, Workload
from parllel.cages import CageInterface, VectorEnvFactory, VectorizedCage

# Its own names, and options that come nearest to those of gymnasium.
NAMES = {"ALE/Pong-v5": "Pong-v5"}
OPTIONS: dict[str, dict[str, Any]] = {
    "ALE/Pong-v5": {
        "img_height": 210,
        "img_width": 160,
        "stack_num": 1,
        "gray_scale": False,
        "noop_max": 1,  # it crashes with 0
        "use_fire_reset": False,
        "repeat_action_probability": 0.25,
        "full_action_space": False,
    }
}


class EnvPoolSide(Side):
    """Its synchronous loop; the row after an end only resets.

    Settings: `num_threads`; `own`, whether frames are as EnvPool makes them, not as gymnasium does.
    """

    libraries = ("envpool",)

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        # The seeds that a cage gives them, of 31 bits.
        seeds = [seed & (2**31 - 1) for seed in workload.seeds()]
        self._envs = make_envs(workload.env_id, settings, workload.B, seeds)
        self._actions = workload.actions()
        space = self._envs.observation_space
        # Of MiniGrid's dicts the image is kept, as the wrapper of all other sides does.
        self._image_only = isinstance(space, spaces.Dict)
        self._rows = Rows(workload, space["image"] if self._image_only else space)
        self._rows.observation[-1] = self._array(self._envs.reset()[0])

    def run(self) -> int:
        """Step T times."""
        step, rows = self._envs.step, self._rows
        rows.begin()
        for t, action in enumerate(self._actions):
            observation, reward, terminated, truncated, _ = step(action)
            rows.observation[t + 1] = self._array(observation)
            rows.reward[t] = reward
            rows.terminated[t] = terminated
            rows.truncated[t] = truncated
        return rows.count_without_resets()

    def _array(self, observation: Any) -> Any:
        return observation["image"] if self._image_only else observation

    def first(self) -> dict[str, float]:
        """Sample the first batch."""
        return self._rows.trace(self.run())

    def close(self) -> None:
        """End the threads."""
        self._envs.close()


class EnvPoolRowsSide(EnvPoolSide):
    """The same with no row lost: what has ended is reset at once, and its last observation kept."""

    def run(self) -> int:
        """Step T times, so that every row of the batch is a step, as in a batch of ours."""
        envs, rows = self._envs, self._rows
        rows.begin()
        for t, action in enumerate(self._actions):
            observation, reward, terminated, truncated, _ = envs.step(action)
            rows.observation[t + 1] = observation
            rows.reward[t] = reward
            rows.terminated[t] = terminated
            rows.truncated[t] = truncated
            ended = np.flatnonzero(terminated | truncated)
            if len(ended):
                rows.final += [(t, int(b), observation[b].copy()) for b in ended]
                rows.observation[t + 1, ended] = envs.reset(ended)[0]
        return rows.reward.size


class EnvPoolCageSide(ParllelSide):
    """The same in a VectorizedCage, as users run it: a sampler, trajectories and all."""

    libraries = ("envpool", "numba")

    def build_cage(self, workload: Workload, settings: dict[str, Any]) -> CageInterface:
        """Return a cage of one EnvPool."""
        factory = VectorEnvFactory(partial(make_envs, workload.env_id, settings))
        return VectorizedCage(factory, n=workload.B, seeds=workload.seed_sequences())


def make_envs(env_id: str, settings: dict[str, Any], n: int, seed: Sequence[int]) -> Any:
    """Make n environments, with a seed for each."""
    options = {} if settings.get("own") else OPTIONS.get(env_id, {})
    return envpool.make_gymnasium(
        NAMES.get(env_id, env_id),
        num_envs=n,
        seed=seed,
        num_threads=settings["num_threads"],
        **options,
    )
