"""Runs that are trained for a moment, and their environments, which are the same everywhere.

Importing it registers the environments, as `--import` does for commands.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.logging import Logger
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeObservations
from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler

NAMES = {"cart_pole": "ShortCartPole-v0", "half_cheetah": "ShortHalfCheetah-v0"}
B = 8


def register(name: str, env_id: str, max_episode_steps: int) -> None:
    """Make an environment of gymnasium known under another name, with shorter episodes."""
    spec = gym.spec(env_id)
    gym.register(name, spec.entry_point, max_episode_steps=max_episode_steps)


if NAMES["cart_pole"] not in gym.registry:
    register(NAMES["cart_pole"], "CartPole-v1", 100)
    register(NAMES["half_cheetah"], "HalfCheetah-v5", 50)


class Seeded(gym.Wrapper[Any, Any, Any, Any]):
    """Reset an environment with a seed of its own, and say in each step which it is."""

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        super().__init__(env)
        self.seed = seed

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**{**arguments, "seed": self.seed})

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "seed": self.seed}


class SeedTraj(TrajInfo):
    """An episode that knows its seed."""

    seed = -1

    def step(self, *arguments: Any) -> None:
        super().step(*arguments)
        self.seed = arguments[-1]["seed"]


def make_seeded(name: str, seed: int) -> gym.Env[Any, Any]:
    """Make an environment whose episodes have one seed."""
    return Seeded(gym.make(NAMES[name]), seed)


def short_cart_pole() -> gym.Env[Any, Any]:
    """Make it, for those who name a function of a file."""
    return gym.make(NAMES["cart_pole"])


def short_half_cheetah() -> gym.Env[Any, Any]:
    """Make it, for those who name a function of a file."""
    return gym.make(NAMES["half_cheetah"])


@dataclass(frozen=True)
class Config:
    """Which environment."""

    name: str = "cart_pole"


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console | None) -> Any:
    """Put a run together."""
    seeds, batch_spec, make_env = (
        Seeds(0),
        BatchSpec(64, B),
        partial(gym.make, NAMES[config.name]),
    )
    cages = build_cages(make_env, B, seeds=seeds, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds)
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent),
        [NormalizeObservations()],
        [EstimateAdvantage(0.98, 0.9)],
    )
    eval_cages = build_cages(make_env, B, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        PPO(agent, **PPO_DEFAULTS, seed=seeds.integer("algorithm")),
        n_steps=2 * batch_spec.size,
        logger=stack.enter_context(Logger([])),
        log_interval_steps=2 * batch_spec.size,
        eval_sampler=build_eval_sampler(eval_cages, sampler, B),
        folder=folder,
        seeds=seeds,
        console=console,
    )
