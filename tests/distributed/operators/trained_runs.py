"""Runs whose policies act in workers, each trained for a moment."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.logging import Logger
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import (
    PPO,
    CategoricalHead,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    TorchHandler,
    agent_for,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.transforms import EstimateAdvantage, NormalizeObservations
from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler

B = 4


@dataclass(frozen=True)
class Config:
    """What kind of run."""

    recurrent: bool = False


def cart() -> gym.Env[Any, Any]:
    """Make CartPole, whose name gymnasium knows."""
    return gym.make("CartPole-v1", max_episode_steps=60)


def half_blind_cart() -> gym.Env[Any, Any]:
    """Make CartPole with positions only."""
    space: Any = cart().observation_space
    shown = gym.spaces.Box(space.low[::2], space.high[::2])
    return gym.wrappers.TransformObservation(cart(), lambda seen: np.array(seen[::2]), shown)


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console | None) -> Any:
    """Put a run together."""
    seeds, batch_spec = Seeds(0), BatchSpec(8, B)
    make_env = half_blind_cart if config.recurrent else cart
    cages = build_cages(
        make_env, B, seeds=seeds, reset_automatically=not config.recurrent, stack=stack
    )
    spaces: Any = cages[0].spaces
    if config.recurrent:
        model = RecurrentPgModel(
            (2,),
            CategoricalHead(2),
            (8,),
            8,
            cell="lstm",
            prev_action=True,
            seed=seeds.integer("model"),
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 4  # until it does not always do the same
        agent: Any = RecurrentPgAgent(
            model, Categorical(2), prev_action=0, seed=seeds.integer("agent")
        )
    else:
        agent = agent_for(spaces, seeds=seeds, hidden_sizes=(16,), policy_gain=5.0)
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent),
        [] if config.recurrent else [NormalizeObservations()],
        [EstimateAdvantage(0.98, 0.9)],
    )
    eval_cages = build_cages(make_env, B, seeds=seeds, name="evaluation", stack=stack)
    learn: Any = RecurrentPPO if config.recurrent else PPO
    return OnPolicyRunner(
        batch_spec,
        sampler,
        learn(agent, **PPO_DEFAULTS, seed=seeds.integer("algorithm")),
        n_steps=3 * batch_spec.size,
        logger=stack.enter_context(Logger([])),
        log_interval_steps=batch_spec.size,
        eval_sampler=build_eval_sampler(eval_cages, sampler, B),
        folder=folder,
        seeds=seeds,
        console=console,
    )
