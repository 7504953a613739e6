"""TorchRL's SerialEnv and ParallelEnv."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torchrl.envs import (  # type: ignore[import-not-found, unused-ignore]
    GymWrapper,
    ParallelEnv,
    SerialEnv,
)

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Rows, Workload

VECTORS = {"serial": SerialEnv, "parallel": ParallelEnv}


def wrap(factory: Any) -> Any:
    """Return one environment as TorchRL wants it, with actions as indices."""
    return GymWrapper(factory(), categorical_action_encoding=True)


class TorchRlSide(Side):
    """The loop of its rollouts, which resets in `step_and_maybe_reset`.

    Settings: `vector`, "serial" or "parallel"; `threads` of torch; `mp_start_method` of the processes.
    """

    libraries = ("torchrl", "tensordict", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        options = {key: settings[key] for key in ("mp_start_method",) if key in settings}
        make_env = partial(wrap, workload.factory())
        self._envs = VECTORS[settings["vector"]](workload.B, make_env, **options)
        env = workload.factory()()
        self._rows = Rows(workload, env.observation_space)
        env.close()
        self._actions = torch.as_tensor(workload.actions())
        env_keys = list(self._envs.observation_spec.keys())
        self._key = "pixels" if "pixels" in env_keys else "observation"
        self._envs.set_seed(workload.seed)
        self._current = self._envs.reset()
        self._rows.observation[-1] = self._current[self._key].numpy()

    def run(self) -> int:
        """Step T times; the true next observation is kept where an episode ended."""
        envs, rows, key = self._envs, self._rows, self._key
        rows.begin()
        current = self._current
        for t, action in enumerate(self._actions):
            current["action"] = action
            stepped, current = envs.step_and_maybe_reset(current)
            after = stepped["next"]
            rows.observation[t + 1] = current[key].numpy()
            rows.reward[t] = after["reward"].squeeze(-1).numpy()
            rows.terminated[t] = after["terminated"].squeeze(-1).numpy()
            rows.truncated[t] = after["truncated"].squeeze(-1).numpy()
            done = after["done"].squeeze(-1)
            if done.any():
                for b in done.nonzero()[:, 0].tolist():
                    rows.final.append((t, b, after[key][b].numpy().copy()))
        self._current = current
        return rows.reward.size

    def first(self) -> dict[str, float]:
        """Sample the first batch."""
        return self._rows.trace(self.run())

    def close(self) -> None:
        """End the processes."""
        self._envs.close()
