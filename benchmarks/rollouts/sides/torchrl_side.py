"""TorchRL's collectors on Ray."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict.nn import TensorDictModule  # type: ignore[import-not-found, unused-ignore]
from tensordict.nn.distributions import (  # type: ignore[import-not-found, unused-ignore]
    NormalParamExtractor,
)
from torch import nn
from torchrl.collectors.distributed import (  # type: ignore[import-not-found, unused-ignore]
    RayCollector,
)
from torchrl.envs import (  # type: ignore[import-not-found, unused-ignore]
    GymWrapper,
    SerialEnv,
)
from torchrl.modules import (  # type: ignore[import-not-found, unused-ignore]
    MLP,
    ProbabilisticActor,
    TanhNormal,
)

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Workload
from benchmarks.rollouts.sides.ray_start import start_ray


class TorchRlSide(Side):
    """Iterate over a RayCollector.

    Settings: `n_workers`; `sync`, whether a batch comes from all collectors; `envs`, "serial" for SerialEnv,
    or "gymnasium" for its SyncVectorEnv; `batches`, of T steps, that a collector returns at once.
    """

    libraries = ("torchrl", "tensordict", "ray", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        n_workers, sync = settings["n_workers"], settings["sync"]
        self._ray = start_ray(n_workers)
        self._steps = workload.T * workload.B
        torch.set_num_threads(1)
        frames = self._steps * settings["batches"]
        make = partial(make_envs, workload, workload.B // n_workers, settings["envs"])
        self._collector = RayCollector(
            [make] * n_workers,
            build_policy(workload),
            frames_per_batch=frames if sync else frames // n_workers,
            total_frames=10**12,
            sync=sync,
            num_collectors=n_workers,
            remote_configs={"num_cpus": 1, "num_gpus": 0},
        )
        self._batches = iter(self._collector)
        self._last: Any = None

    def run(self) -> int:
        """Collect at least B x T steps."""
        steps = 0
        while steps < self._steps:
            self._last = next(self._batches)
            steps += self._last.numel()
        return steps

    def first(self) -> dict[str, float]:
        """Collect the first batch."""
        steps = self.run()
        return {"steps": steps, "reward": float(self._last["next", "reward"].sum())}

    def close(self) -> None:
        """End the collectors and Ray."""
        self._collector.shutdown()
        self._ray.shutdown()


def make_envs(workload: Workload, n: int, how: str) -> Any:
    """Make the environments of one collector, in its process."""
    torch.set_num_threads(1)
    if how == "gymnasium":
        # Its own GymEnv(num_envs=n) would start a process for each, which is slower by far here.
        vector = SyncVectorEnv([workload.factory()] * n, autoreset_mode=AutoresetMode.DISABLED)
        return GymWrapper(vector, categorical_action_encoding=True)
    return SerialEnv(n, partial(make_env, workload))


def make_env(workload: Workload) -> Any:
    """Make one environment, with actions as indices."""
    return GymWrapper(workload.factory()(), categorical_action_encoding=True)


class ToFloat(nn.Module):
    """Take observations of any type to float32."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the observation as float32."""
        return observation.float()


def build_policy(workload: Workload) -> Any:
    """Return a policy of two layers of 64 units with log probabilities."""
    env = workload.factory()()
    n_observations = env.observation_space.shape[0]  # type: ignore[index]
    discrete = hasattr(env.action_space, "n")
    n_actions = int(env.action_space.n) if discrete else env.action_space.shape[0]  # type: ignore[attr-defined, index]
    env.close()
    n_outputs = n_actions if discrete else 2 * n_actions
    layers = MLP(
        in_features=n_observations,
        out_features=n_outputs,
        num_cells=[64, 64],
        activation_class=nn.Tanh,
    )
    keys = ["logits"] if discrete else ["loc", "scale"]
    # MuJoCo's observations are float64; a cast costs less than TorchRL's transform of environments.
    network = layers if discrete else nn.Sequential(ToFloat(), layers, NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=keys),
        in_keys=keys,
        distribution_class=torch.distributions.Categorical if discrete else TanhNormal,
        return_log_prob=True,
    )
