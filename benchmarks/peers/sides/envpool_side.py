"""EnvPool: environments in C++, so no peer of Python ones; listed apart."""

from __future__ import annotations

from typing import Any

import envpool  # type: ignore[import-not-found, unused-ignore]
from gymnasium import spaces

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Rows, Workload

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
    """Its synchronous loop; the row after an end only resets. Settings: `num_threads`."""

    libraries = ("envpool",)

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        env_id = workload.env_id
        self._envs = envpool.make_gymnasium(
            NAMES.get(env_id, env_id),
            num_envs=workload.B,
            seed=workload.seed,
            num_threads=settings["num_threads"],
            **OPTIONS.get(env_id, {}),
        )
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
