"""PPO on a CartPole whose observations are small and far from zero, from fragments of one worker."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import Cage
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    EpisodeStatistics,
    FragmentSampler,
    FragmentSender,
    LocalRollouts,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
    Trainer,
    WorkerContext,
)
from parllel.logging import CsvWriter, Logger
from parllel.runs import RunFolder
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage, NormalizeObservations
from parllel_patterns import (
    PPO_DEFAULTS,
    allocate_samples,
    build_cages,
    build_eval_sampler,
    build_sampler,
)

N_ENVS = 8


@dataclass(frozen=True)
class Config:
    """What is compared, and for how long."""

    seed: int = 0
    normalize: bool = True
    schedule: str = "rows"
    n_steps: int = 8192


def far_cart() -> gym.Env[Any, Any]:
    """Make the environment."""
    env = gym.make("CartPole-v1", max_episode_steps=200, render_mode="rgb_array")
    scale = np.array([0.05, 0.02, 0.05, 0.02], np.float32)
    space: Any = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda seen: seen * scale + 7, space)


def step_transforms(config: Config) -> list[NormalizeObservations]:
    return [NormalizeObservations()] if config.normalize else []


def build_worker(context: WorkerContext, config: Config) -> RolloutWorker:
    """Put the worker together."""
    seeds, step = Seeds(Seeds(config.seed).integer(context.name)), step_transforms(config)
    if config.schedule == "rows":
        cages = build_cages(far_cart, N_ENVS, seeds=seeds)
        handler = TorchHandler(agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(32,)))
        sampler = build_sampler(BatchSpec(32, N_ENVS), cages, handler, step, next_observation=True)
        schedule: Any = SynchronousSchedule(sampler)
    else:
        cages = [Cage(far_cart, seed=config.seed + i, index=i) for i in range(N_ENVS)]
        handler = TorchHandler(agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(32,)))
        samples = allocate_samples(cages, BatchSpec(4, N_ENVS), handler, step)
        schedule = AsynchronousSchedule(
            cages, handler, samples, batch_size=4, max_wait_s=0.01, step_transforms=step
        )
    sender = FragmentSender(context.storage, capacity=1)
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        schedule,
        fragment_length=32,
        seed=seeds.integer("noise"),
        producer=context.name,
        sender=sender,
        statistics=context.statistics,
    )


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console | None) -> Trainer:
    """Put the run together."""
    seeds, spec = Seeds(config.seed), BatchSpec(32, 2 * N_ENVS)
    buffer = stack.enter_context(ReplayBuffer(spec.B, max_staleness=2))
    statistics = EpisodeStatistics()
    workers = stack.enter_context(
        LocalRollouts(partial(build_worker, config=config), 1, buffer, statistics)
    )
    eval_cages = build_cages(far_cart, 8, seeds=seeds, name="evaluation", stack=stack)
    agent = agent_for(eval_cages[0].spaces, seeds=seeds, hidden_sizes=(32,))
    handler, step = TorchHandler(agent), step_transforms(config)
    transforms = [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
    sampler = FragmentSampler(
        spec,
        buffer,
        handler,
        allocate_samples(eval_cages, spec, handler, [*step, *transforms]),
        step,
        transforms,
        workers=workers,
        statistics=statistics,
    )
    return Trainer(
        spec,
        stack.enter_context(sampler),
        PPO(agent, **{**PPO_DEFAULTS, "learning_rate": 2e-3}, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger([CsvWriter(folder.path)])),
        log_interval_steps=8 * spec.size,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 8),
        folder=folder,
        seeds=seeds,
        console=console,
        checkpoint_interval_s=0.0,
    )
