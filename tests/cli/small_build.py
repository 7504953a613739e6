"""A run that is over in a moment: random actions on CartPole, and nothing is learned."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler, RandomAgent
from parllel.algos import Algorithm
from parllel.logging import CsvWriter, Logger, TextWriter
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.samplers import BasicSampler, EvalSampler
from parllel_patterns import allocate_eval_samples, allocate_samples, build_cages


@dataclass(frozen=True)
class Learning:
    """A part of the config that is nested."""

    rate: float = 1e-3


@dataclass(frozen=True)
class Config:
    """What can be changed about the run."""

    seed: int = 0
    n_steps: int = 60
    pause_s: float = 0.0
    failing_at: int = -1
    evaluate: bool = True
    render_mode: str | None = "rgb_array"
    learning: Learning = field(default_factory=Learning)


class Waiting(Algorithm):
    """Take some time, and fail where it is told to."""

    def __init__(self, pause_s: float, failing_at: int) -> None:
        self.pause_s, self.failing_at = pause_s, failing_at

    def optimize_agent(self, elapsed_steps, samples):
        time.sleep(self.pause_s)
        if elapsed_steps == self.failing_at:
            raise ValueError("the loss is not finite")
        return {}


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put the run together."""
    seeds = Seeds(config.seed)
    make_env = partial(gym.make, "CartPole-v1", render_mode=config.render_mode)
    cages = build_cages(make_env, 2, seeds=seeds)
    eval_cages = build_cages(make_env, 2, seeds=seeds, name="evaluation")
    for cage in [*cages, *eval_cages]:
        stack.callback(cage.close)
    agent = RandomAgent(cages[0].spaces.action, seeds.integer("agent"))
    handler = NumpyHandler(agent)
    batch_spec = BatchSpec(10, 2)
    samples = allocate_samples(cages, batch_spec, handler)
    eval_sampler = EvalSampler(eval_cages, handler, allocate_eval_samples(eval_cages), 2)
    logger = stack.enter_context(Logger([CsvWriter(folder.path), TextWriter(folder.path)]))
    return OnPolicyRunner(
        batch_spec,
        BasicSampler(batch_spec, cages, handler, samples),
        Waiting(config.pause_s, config.failing_at),
        n_steps=config.n_steps,
        logger=logger,
        log_interval_steps=20,
        eval_sampler=eval_sampler if config.evaluate else None,
        state_parts={"agent": agent},
        folder=folder,
        seeds=seeds,
        checkpoint_interval_s=0,
        console=console,
    )
