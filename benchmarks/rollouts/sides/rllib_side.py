"""The env runners of RLlib's IMPALA, called as in its training step."""

from __future__ import annotations

import time
from typing import Any

from ray.rllib.algorithms.impala import (  # type: ignore[import-not-found, unused-ignore]
    IMPALAConfig,
)
from ray.rllib.core.rl_module.default_model_config import (  # type: ignore[import-not-found, unused-ignore]
    DefaultModelConfig,
)
from ray.rllib.env.env_runner_group import (  # type: ignore[import-not-found, unused-ignore]
    EnvRunnerGroup,
)
from ray.tune.registry import register_env  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Workload
from benchmarks.rollouts.sides.ray_start import start_ray

SAMPLE = "sample_get_state_and_metrics"


class RllibSide(Side):
    """Collect lists of episodes, and get them into this process.

    Settings: `n_workers`; `in_flight`, requests that each env runner is sent ahead; `wait_s`, how long the
    answers of all are waited for before those that are there are taken; `vectorize`, "sync" or "async".
    """

    libraries = ("ray", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        n_workers = settings["n_workers"]
        self._ray = start_ray(n_workers)
        self._steps, self._wait_s = workload.T * workload.B, settings["wait_s"]
        config: Any = IMPALAConfig()  # type: ignore[no-untyped-call, unused-ignore]
        register_env(workload.env_id, lambda _: workload.factory()())
        config.environment(workload.env_id)
        config.env_runners(
            num_env_runners=n_workers,
            num_envs_per_env_runner=workload.B // n_workers,
            gym_env_vectorize_mode=settings["vectorize"],
            rollout_fragment_length=workload.T,
            create_env_on_local_worker=False,
        )
        config.fault_tolerance(restart_failed_env_runners=False)
        config.max_requests_in_flight_per_env_runner = settings["in_flight"]
        config.rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh")
        )
        config.debugging(seed=workload.seed)
        self._group = EnvRunnerGroup(config=config, local_env_runner=False)
        self._episodes: list[Any] = []

    def run(self) -> int:
        """Collect at least B x T steps."""
        steps = 0
        while steps < self._steps:
            ready: list[Any] = self._group.foreach_env_runner_async_fetch_ready(
                func=SAMPLE, tag=SAMPLE, timeout_seconds=self._wait_s
            )
            for episodes, _, _ in ready:
                self._episodes = self._ray.get(episodes)
                steps += sum(len(episode) for episode in self._episodes)
            if not ready and not self._wait_s:
                time.sleep(1e-3)
        return steps

    def first(self) -> dict[str, float]:
        """Collect the first batch."""
        steps = self.run()
        reward = sum(float(episode.get_rewards().sum()) for episode in self._episodes)
        return {"steps": steps, "reward": reward}

    def close(self) -> None:
        """End the env runners and Ray."""
        self._group.stop()
        self._ray.shutdown()
