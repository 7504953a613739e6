"""Train PPO on CartPole; another process makes the next batch while this one is learned from."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.runners import AsynchronousRunner, RunFolder
from parllel.samplers import AsynchronousSampler, BasicSampler, EvalSampler
from parllel.torch.agents import CategoricalPgAgent
from parllel.torch.algos import PPO
from parllel.torch.handler import TorchHandler
from parllel.torch.models import CategoricalPgModel
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PpoParameters,
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_logger,
    main,
)

MAKE_ENV = partial(gym.make, "CartPole-v1")


@dataclass(frozen=True)
class Config:
    """Everything that can be changed about a run."""

    seed: int = 0
    T: int = 64
    B: int = 16
    n_steps: int = 200_000
    max_staleness: int = 1
    log_interval_steps: int = 5_120
    n_eval_episodes: int = 100
    target_return: float = 475.0
    hidden_sizes: tuple[int, ...] = (64, 64)
    discount: float = 0.98
    gae_lambda: float = 0.9
    ppo: PpoParameters = field(default_factory=lambda: PpoParameters(learning_rate=1e-3, epochs=8))


def make_agent(config: Config, seeds: Seeds) -> CategoricalPgAgent:
    """Make the agent: the one that learns, and the one that samples with its weights."""
    model = CategoricalPgModel((4,), 2, config.hidden_sizes, seed=seeds.integer("model"))
    return CategoricalPgAgent(model, 2, seed=seeds.integer("agent"))


def build_sampler(config: Config, seeds: Seeds) -> BasicSampler:
    """Put the sampler together; this runs in the sampling process."""
    torch.set_num_threads(1)
    batch_spec = BatchSpec(config.T, config.B)
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(MAKE_ENV, config.B, seeds=seeds, traj_info=traj_info)
    handler = TorchHandler(make_agent(config, seeds))
    batch_transforms = [
        EstimateAdvantage(config.discount, config.gae_lambda),
        NormalizeAdvantage(),
    ]
    samples = allocate_samples(cages, batch_spec, handler, batch_transforms)
    return BasicSampler(
        batch_spec,
        cages,
        handler,
        samples,
        batch_transforms=batch_transforms,
        decorrelation_steps=50,
        decorrelation_seed=seeds.sequence("decorrelation"),
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> AsynchronousRunner:
    """Put a run together; what must be closed goes on the stack."""
    torch.set_num_threads(1)  # networks this small are faster on one
    seeds = Seeds(config.seed)
    # Seeds come from their names, so the copy in the other process needs no word of those drawn here.
    make = partial(build_sampler, config, Seeds(config.seed))
    agent = make_agent(config, seeds)
    sampler = stack.enter_context(
        AsynchronousSampler(make, agent=agent, max_staleness=config.max_staleness)
    )

    make_eval_env = partial(MAKE_ENV, render_mode="rgb_array")
    eval_cages = build_cages(make_eval_env, config.B, seeds=seeds, name="evaluation")
    for cage in eval_cages:
        stack.callback(cage.close)
    eval_sampler = EvalSampler(
        eval_cages, TorchHandler(agent), allocate_eval_samples(eval_cages), config.n_eval_episodes
    )
    algorithm = PPO(agent, **config.ppo, seed=seeds.integer("algorithm"))
    return AsynchronousRunner(
        BatchSpec(config.T, config.B),
        sampler,
        algorithm,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=eval_sampler,
        target_return=config.target_return,
        state_parts={"agent": agent},
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    result, _ = main(build, Config, base="runs/cartpole_async", name=lambda c: f"ppo-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
