"""The vector environments that are timed, and Stable-Baselines3's PPO on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from benchmarks.harness.turns import Work
from benchmarks.vector.report import ASYNC, DUMMY, HERE, SUBPROC, SYNC
from parllel.system.processes.cores import usable_cores
from parllel.vector import VecEnv, VectorEnv

N = 16
SCENES = {
    "cartpole": "CartPole-v1",
    "halfcheetah": "HalfCheetah-v5",
    "pong": "ale_py:ALE/Pong-v5",
}
TRAINED = ("cartpole", "halfcheetah")

# Where our environments are; the best of these is compared.
PLACES: dict[str, dict[str, Any]] = {
    "as planned": {},
    "workers and this process": {"n_workers": max(usable_cores() - 1, 1)},
    HERE: {"parallel": False},
}
VECTOR_ENVS = {f"VectorEnv, {place}": options for place, options in PLACES.items()}
VEC_ENVS = {f"VecEnv, {place}": options for place, options in PLACES.items()}
ROWS = 16


@dataclass
class Rows:
    """Rows of a vector environment with drawn actions.

    Attributes:
        env: a vector environment that was reset.
        actions: [64, N, ...].
    """

    env: Any
    actions: list[Any]
    t: int = 0

    def __call__(self) -> int:
        """Step all environments a few times; return the number of their steps."""
        for _ in range(ROWS):
            self.env.step(self.actions[self.t % len(self.actions)])
            self.t += 1
        return ROWS * N

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


@dataclass
class Training:
    """PPO with Stable-Baselines3's parameters, a batch at a time.

    Attributes:
        env: a vector environment.
        n_steps: of each environment in a batch.
    """

    env: Any
    n_steps: int

    def __post_init__(self) -> None:
        self.model = PPO("MlpPolicy", self.env, n_steps=self.n_steps, seed=0, device="cpu")

    def __call__(self) -> int:
        """Sample a batch and learn from it; return its steps."""
        self.model.learn(self.n_steps * N, reset_num_timesteps=False)
        return self.n_steps * N

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def sides_of(scene: str) -> dict[str, Callable[[], Work]]:
    """Return what makes each vector environment of a scene."""
    makes = [partial(gym.make, SCENES[scene])] * N
    return {
        SYNC: lambda: _gymnasium(SyncVectorEnv(makes)),
        # Observations through shared memory, its default and its best.
        ASYNC: lambda: _gymnasium(AsyncVectorEnv(makes)),
        **{
            name: lambda options=options: _gymnasium(VectorEnv(makes, **options))  # type: ignore[misc]
            for name, options in VECTOR_ENVS.items()
        },
        **{
            name: lambda make=make: _stable_baselines(make())  # type: ignore[misc]
            for name, make in _vec_envs(makes).items()
        },
    }


def trainings_of(scene: str, n_steps: int) -> dict[str, Callable[[], Work]]:
    """Return what makes the trainings on a scene."""
    makes = [partial(gym.make, SCENES[scene])] * N
    return {
        name: lambda make=make: Training(make(), n_steps)  # type: ignore[misc]
        for name, make in _vec_envs(makes).items()
    }


def _vec_envs(makes: Sequence[Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    return {
        DUMMY: lambda: DummyVecEnv([*makes]),
        # Its steps cost the same with each start method.
        SUBPROC: lambda: SubprocVecEnv([*makes], start_method="fork"),
        **{
            name: lambda options=options: VecEnv(makes, **options)  # type: ignore[misc]
            for name, options in VEC_ENVS.items()
        },
    }


def _gymnasium(env: Any) -> Rows:
    env.reset(seed=0)
    return Rows(env, _actions(env.single_action_space))


def _stable_baselines(env: Any) -> Rows:
    env.seed(0)
    env.reset()
    return Rows(env, _actions(env.action_space))


def _actions(space: gym.Space[Any]) -> list[Any]:
    space.seed(0)
    return [np.stack([space.sample() for _ in range(N)]) for _ in range(64)]
