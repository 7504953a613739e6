"""Train PPO on CartPole until it is solved: `make train`, or `make train SEED=1 ARGS=--parallel`."""

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
from parllel.runners import OnPolicyRunner, RunFolder, RunResult
from parllel.samplers import BasicSampler, EvalSampler, plan_sampling
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


@dataclass(frozen=True)
class Config:
    """Everything that can be changed about a run."""

    seed: int = 0
    parallel: bool = False
    T: int = 64
    B: int = 16
    n_steps: int = 150_000
    log_interval_steps: int = 5_120
    n_eval_episodes: int = 100
    target_return: float = 475.0
    hidden_sizes: tuple[int, ...] = (64, 64)
    discount: float = 0.98
    gae_lambda: float = 0.9
    ppo: dict[str, Any] = field(
        default_factory=lambda: {**PPO_DEFAULTS, "learning_rate": 1e-3, "epochs": 8}
    )


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console) -> OnPolicyRunner:
    """Put a run together, in the order of the data; what must be closed goes on the stack."""
    seeds = Seeds(config.seed)
    batch_spec = BatchSpec(config.T, config.B)
    make_env = partial(gym.make, "CartPole-v1")
    traj_info = partial(TrajInfo, discount=config.discount)
    parallel = plan_sampling(make_env, config.B) if config.parallel else False
    cages = build_cages(make_env, config.B, seeds=seeds, parallel=parallel, traj_info=traj_info)
    for cage in cages:
        stack.callback(cage.close)
    spaces = cages[0].spaces

    model = CategoricalPgModel(
        spaces.observation.shape or (),
        int(spaces.action.n),  # type: ignore[attr-defined]
        config.hidden_sizes,
        seed=seeds.integer("model"),
    )
    agent = CategoricalPgAgent(
        model,
        int(spaces.action.n),  # type: ignore[attr-defined]
        seed=seeds.integer("agent"),
    )
    handler = TorchHandler(agent)
    batch_transforms = [
        EstimateAdvantage(config.discount, config.gae_lambda),
        NormalizeAdvantage(),
    ]
    samples = allocate_samples(cages, batch_spec, handler, batch_transforms)
    sampler = BasicSampler(
        batch_spec,
        cages,
        handler,
        samples,
        batch_transforms=batch_transforms,
        decorrelation_steps=50,
        decorrelation_seed=seeds.sequence("decorrelation"),
    )

    eval_cages = build_cages(
        make_env, config.B, seeds=seeds, name="evaluation", traj_info=traj_info
    )
    for cage in eval_cages:
        stack.callback(cage.close)
    eval_sampler = EvalSampler(
        eval_cages, handler, allocate_eval_samples(eval_cages), config.n_eval_episodes
    )
    algorithm = PPO(agent, **config.ppo, seed=seeds.integer("algorithm"))
    folder.write_start(config, seeds)
    logger = stack.enter_context(build_logger(folder, console))
    if parallel:
        logger.notice(f"environments: {parallel}")
    return OnPolicyRunner(
        batch_spec,
        sampler,
        algorithm,
        n_steps=config.n_steps,
        logger=logger,
        log_interval_steps=config.log_interval_steps,
        eval_sampler=eval_sampler,
        target_return=config.target_return,
        state_parts={"agent": agent},
        folder=folder,
        console=console,
    )


def train(config: Config, runs: str = "runs/cartpole") -> tuple[RunResult, RunFolder]:
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
    parser.add_argument("--parallel", action="store_true", help="environments in several processes")
    parser.add_argument("--n-steps", type=int, default=defaults["n_steps"])
    parser.add_argument("--runs", default="runs/cartpole", help="folder of all runs")
    arguments = parser.parse_args()
    config = Config(arguments.seed, arguments.parallel, n_steps=arguments.n_steps)
    result, _ = train(config, arguments.runs)
    raise SystemExit(0 if result.solved else 1)
