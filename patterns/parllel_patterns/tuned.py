"""Tuned settings by name: environment, sizes and parameters of an algorithm that learn together.

`examples/gallery/train.py NAME` trains with them. docs/gallery.md shows the returns they reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.policies.env_names import env_named
from parllel.runs.names import nearest, suggest_fields
from parllel_patterns.parameters import DqnParameters, PpoParameters, SacParameters

HIGHEST = 10  # largest number in a view of MiniGrid


@suggest_fields
@dataclass(frozen=True)
class TunedPpo:
    """Settings of a run with PPO."""

    env_id: str  # of the environment, see `make_tuned_env`
    n_steps: int  # environment steps to train for
    log_interval_steps: int  # environment steps between rows of the log
    T: int  # steps of each environment in a batch
    B: int  # parallel environments
    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the model, such as "cuda"
    n_eval_episodes: int = 10  # episodes of an evaluation
    hidden_sizes: tuple[int, ...] = (64, 64)  # of the networks
    initial_log_std: float = 0.0  # of continuous actions, before training
    normalize: bool = False  # whether observations and rewards are normalised
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(default_factory=PpoParameters)


@suggest_fields
@dataclass(frozen=True)
class TunedDqn:
    """Settings of a run with DQN."""

    env_id: str  # of the environment, see `make_tuned_env`
    n_steps: int  # environment steps to train for
    log_interval_steps: int  # environment steps between rows of the log
    T: int  # steps of each environment in a batch
    B: int  # parallel environments
    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the model, such as "cuda"
    n_eval_episodes: int = 10  # episodes of an evaluation
    hidden_sizes: tuple[int, ...] = (256, 256)  # of the network
    discount: float = 0.99  # of rewards, per step
    replay_steps: int = 100_000  # environment steps that the replay holds
    batch_size: int = 64  # transitions of a gradient step
    replay_ratio: float = 0.5  # gradient steps per environment step
    learning_starts: int = 1_000  # environment steps before the first gradient step
    dqn: DqnParameters = field(default_factory=DqnParameters)


@suggest_fields
@dataclass(frozen=True)
class TunedSac:
    """Settings of a run with SAC."""

    env_id: str  # of the environment, see `make_tuned_env`
    n_steps: int  # environment steps to train for
    log_interval_steps: int  # environment steps between rows of the log
    T: int  # steps of each environment in a batch
    B: int = 1  # parallel environments
    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the models, such as "cuda"
    n_eval_episodes: int = 10  # episodes of an evaluation
    hidden_sizes: tuple[int, ...] = (256, 256)  # of the networks
    discount: float = 0.99  # of rewards, per step
    replay_steps: int = 1_000_000  # environment steps that the replay holds
    batch_size: int = 256  # transitions of a gradient step
    replay_ratio: float = 1.0  # gradient steps per environment step
    learning_starts: int = 10_000  # environment steps before the first gradient step
    sac: SacParameters = field(default_factory=SacParameters)


TunedConfig: TypeAlias = TunedPpo | TunedDqn | TunedSac

# Based on the settings of RL Baselines3 Zoo, with fewer steps where a shorter run learns most of it.
TUNED: Mapping[str, TunedConfig] = MappingProxyType(
    {
        "cartpole-ppo": TunedPpo(
            env_id="CartPole-v1",
            n_steps=51_200,
            log_interval_steps=2_560,
            T=32,
            B=8,
            discount=0.98,
            gae_lambda=0.8,
            ppo=PpoParameters(
                learning_rate=1e-3, learning_rate_anneal_steps=51_200, epochs=20, minibatches=1
            ),
        ),
        "cartpole-dqn": TunedDqn(
            env_id="CartPole-v1",
            n_steps=51_200,
            log_interval_steps=2_560,
            T=32,
            B=8,
            dqn=DqnParameters(
                learning_rate=2.3e-3,
                double=False,
                target_update_interval=128,
                final_epsilon=0.04,
                epsilon_anneal_steps=8_192,
            ),
        ),
        "acrobot-ppo": TunedPpo(
            env_id="Acrobot-v1",
            n_steps=98_304,
            log_interval_steps=8_192,
            T=256,
            B=16,
            normalize=True,
            gae_lambda=0.94,
            ppo=PpoParameters(learning_rate=3e-4, epochs=4, minibatches=64),
        ),
        "pendulum-sac": TunedSac(
            env_id="Pendulum-v1",
            n_steps=6_000,
            log_interval_steps=400,
            T=8,
            replay_steps=100_000,
            learning_starts=400,
            sac=SacParameters(learning_rate=1e-3, random_steps=400),
        ),
        "doorkey-ppo": TunedPpo(
            env_id="MiniGrid-DoorKey-5x5-v0",
            n_steps=102_400,
            log_interval_steps=5_120,
            T=128,
            B=8,
            normalize=True,
            ppo=PpoParameters(learning_rate=2.5e-4, epochs=10, minibatches=16),
        ),
        "mountaincar-dqn": TunedDqn(
            env_id="MountainCar-v0",
            n_steps=120_000,
            log_interval_steps=6_000,
            T=16,
            B=1,
            discount=0.98,
            replay_steps=10_000,
            batch_size=128,
            dqn=DqnParameters(
                learning_rate=4e-3,
                double=False,
                target_update_interval=300,
                final_epsilon=0.07,
                epsilon_anneal_steps=24_000,
            ),
        ),
        "double-pendulum-ppo": TunedPpo(
            env_id="InvertedDoublePendulum-v5",
            n_steps=204_800,
            log_interval_steps=10_240,
            T=256,
            B=8,
            normalize=True,
            ppo=PpoParameters(
                learning_rate=3e-4, learning_rate_anneal_steps=204_800, epochs=10, minibatches=16
            ),
        ),
        "hopper-ppo": TunedPpo(
            env_id="Hopper-v5",
            n_steps=307_200,
            log_interval_steps=20_480,
            T=256,
            B=8,
            normalize=True,
            initial_log_std=-0.5,
            ppo=PpoParameters(
                learning_rate=3e-4, learning_rate_anneal_steps=307_200, epochs=10, minibatches=16
            ),
        ),
    }
)


def tuned(name: str) -> TunedConfig:
    """Return the tuned settings of a name, such as "cartpole-ppo".

    Raises:
        ValueError: for an unknown name. The message suggests a similar one.
        TypeError: for anything but a string.
    """
    if not isinstance(name, str):
        raise TypeError(f"tuned: expected a name such as {next(iter(TUNED))!r}, got {name!r}")
    if name in TUNED:
        return TUNED[name]
    near = nearest(name, TUNED)
    hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(TUNED)}"
    raise ValueError(f"tuned: unknown settings {name!r}; {hint}")


def make_tuned_env(env_id: str) -> gym.Env[Any, Any]:
    """Make an environment of tuned settings, with frames as arrays where it can render.

    Of MiniGrid's observations, only the agent's view is left, as [147] float32 in [0, 1].

    env_id: a name as in `parllel.policies.env_named`.

    Raises:
        ValueError: if there is no such environment.
    """
    env = env_named(env_id)()
    space = env.observation_space
    if not isinstance(space, gym.spaces.Dict) or "image" not in space.spaces:
        return env
    shape = space["image"].shape
    assert shape is not None
    view = gym.spaces.Box(0.0, 1.0, (int(np.prod(shape)),), np.float32)
    return gym.wrappers.TransformObservation(env, _flat_view, view)


def _flat_view(observation: Mapping[str, Any]) -> NDArray[np.float32]:
    view: NDArray[np.float32] = observation["image"].reshape(-1).astype(np.float32)
    view /= HIGHEST
    return view
