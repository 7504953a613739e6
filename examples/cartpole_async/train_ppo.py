"""Train PPO on CartPole; another process makes the next batch while this one is learned from."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.runners import AsynchronousRunner, RunFolder, RunResult
from parllel.samplers import AsynchronousSampler, BasicSampler, EvalSampler
from parllel.torch.agents import CategoricalPgAgent
from parllel.torch.algos import PPO
from parllel.torch.handler import TorchHandler
from parllel.torch.models import CategoricalPgModel
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PPO_DEFAULTS,
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_logger,
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
    ppo: dict[str, Any] = field(
        default_factory=lambda: {**PPO_DEFAULTS, "learning_rate": 1e-3, "epochs": 8}
    )


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
    config: Config, stack: ExitStack, folder: RunFolder, console: Console
) -> AsynchronousRunner:
    """Put a run together; what must be closed goes on the stack."""
    seeds = Seeds(config.seed)
    # Seeds come from their names, so the copy in the other process needs no word of those drawn here.
    make = partial(build_sampler, config, Seeds(config.seed))
    agent = make_agent(config, seeds)
    sampler = stack.enter_context(
        AsynchronousSampler(make, agent=agent, max_staleness=config.max_staleness)
    )

    eval_cages = build_cages(MAKE_ENV, config.B, seeds=seeds, name="evaluation")
    for cage in eval_cages:
        stack.callback(cage.close)
    eval_sampler = EvalSampler(
        eval_cages, TorchHandler(agent), allocate_eval_samples(eval_cages), config.n_eval_episodes
    )
    algorithm = PPO(agent, **config.ppo, seed=seeds.integer("algorithm"))
    folder.write_start(config, seeds)
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
        console=console,
    )


def train(config: Config, runs: str = "runs/cartpole_async") -> tuple[RunResult, RunFolder]:
    """Train, say what came of it, and return it."""
    torch.set_num_threads(1)  # networks this small are faster on one
    console = Console()
    folder = RunFolder(runs, f"ppo-seed{config.seed}")
    with ExitStack() as stack:
        result = build(config, stack, folder, console).run()
    verdict = "solved" if result.solved else "not solved"
    console.print(
        f"CartPole {verdict}: mean return {result.evaluation_return:.1f} over "
        f"{config.n_eval_episodes} episodes after {result.elapsed_steps:,} environment steps.",
        soft_wrap=True,
    )
    console.print(f"Everything about this run is in {folder.path}", soft_wrap=True)
    return result, folder


if __name__ == "__main__":
    defaults = asdict(Config())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=defaults["seed"])
    parser.add_argument("--n-steps", type=int, default=defaults["n_steps"])
    parser.add_argument("--max-staleness", type=int, default=defaults["max_staleness"])
    parser.add_argument("--runs", default="runs/cartpole_async", help="folder of all runs")
    arguments = parser.parse_args()
    config = Config(
        arguments.seed, n_steps=arguments.n_steps, max_staleness=arguments.max_staleness
    )
    result, _ = train(config, arguments.runs)
    raise SystemExit(0 if result.solved else 1)
