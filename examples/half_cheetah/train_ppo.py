"""Train PPO with continuous actions on HalfCheetah-v5, observations and rewards normalised.

The curve beside this file was made by

    python examples/half_cheetah/train_ppo.py --seed 0 --curve examples/half_cheetah/curve
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.runners import OnPolicyRunner, RunFolder, RunResult, plot_learning_curve, versions
from parllel.samplers import BasicSampler, EvalSampler, plan_sampling
from parllel.torch.agents import GaussianPgAgent
from parllel.torch.algos import PPO
from parllel.torch.handler import TorchHandler
from parllel.torch.models import GaussianPgModel
from parllel.transforms import (
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
)
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
    env_id: str = "HalfCheetah-v5"
    parallel: bool = False
    T: int = 256
    B: int = 8
    n_steps: int = 1_000_000
    log_interval_steps: int = 51_200
    n_eval_episodes: int = 10
    hidden_sizes: tuple[int, ...] = (64, 64)
    initial_log_std: float = -1.0
    discount: float = 0.98
    gae_lambda: float = 0.92
    ppo: dict[str, Any] = field(
        default_factory=lambda: {
            **PPO_DEFAULTS,
            "learning_rate": 3e-4,
            "learning_rate_anneal_steps": 1_000_000,
            "epochs": 10,
            "minibatches": 16,
        }
    )


def make_env(env_id: str) -> gym.Env[Any, Any]:
    """Make the environment; actions are drawn from a normal distribution and clipped here."""
    return gym.wrappers.ClipAction(gym.make(env_id))


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console) -> OnPolicyRunner:
    """Put a run together, in the order of the data; what must be closed goes on the stack."""
    seeds = Seeds(config.seed)
    batch_spec = BatchSpec(config.T, config.B)
    factory = partial(make_env, config.env_id)
    traj_info = partial(TrajInfo, discount=config.discount)
    parallel = plan_sampling(factory, config.B) if config.parallel else False
    cages = build_cages(factory, config.B, seeds=seeds, parallel=parallel, traj_info=traj_info)
    for cage in cages:
        stack.callback(cage.close)
    spaces = cages[0].spaces
    action_shape = spaces.action.shape or ()

    model = GaussianPgModel(
        spaces.observation.shape or (),
        action_shape,
        config.hidden_sizes,
        config.initial_log_std,
        seed=seeds.integer("model"),
    )
    agent = GaussianPgAgent(model, action_shape, seed=seeds.integer("agent"))
    handler = TorchHandler(agent)
    step_transforms = [NormalizeObservations()]
    batch_transforms = [
        NormalizeRewards(config.discount),
        EstimateAdvantage(config.discount, config.gae_lambda, reward="env.normalized_reward"),
        NormalizeAdvantage(),
    ]
    samples = allocate_samples(cages, batch_spec, handler, [*step_transforms, *batch_transforms])
    sampler = BasicSampler(batch_spec, cages, handler, samples, step_transforms, batch_transforms)

    eval_cages = build_cages(factory, 5, seeds=seeds, name="evaluation", traj_info=traj_info)
    for cage in eval_cages:
        stack.callback(cage.close)
    eval_sampler = EvalSampler(
        eval_cages,
        handler,
        allocate_eval_samples(eval_cages),
        config.n_eval_episodes,
        step_transforms,
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
        state_parts={"agent": agent},
        folder=folder,
        console=console,
    )


def train(config: Config, runs: str = "runs/half_cheetah") -> tuple[RunResult, RunFolder]:
    """Train, say what came of it, and return it."""
    torch.set_num_threads(1)  # networks this small are faster on one
    console = Console()
    folder = RunFolder(runs, f"ppo-seed{config.seed}")
    with ExitStack() as stack:
        result = build(config, stack, folder, console).run()
    console.print(
        f"{config.env_id}: mean return {result.evaluation_return:.1f} over "
        f"{config.n_eval_episodes} episodes after {result.elapsed_steps:,} environment steps.",
        soft_wrap=True,
    )
    console.print(f"Everything about this run is in {folder.path}", soft_wrap=True)
    return result, folder


def save_curve(path: str, config: Config, result: RunResult) -> None:
    """Write the curves as JSON and PNG."""
    about = {"config": asdict(config), "versions": versions(), "curves": result.curves}
    Path(f"{path}.json").write_text(json.dumps(about, indent=1) + "\n")
    plot_learning_curve(f"{path}.png", result.curves, f"PPO on {config.env_id}")


if __name__ == "__main__":
    defaults = Config()
    parser = argparse.ArgumentParser(description="Train PPO on HalfCheetah-v5.")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--parallel", action="store_true", help="environments in several processes")
    parser.add_argument("--n-steps", type=int, default=defaults.n_steps)
    parser.add_argument("--runs", default="runs/half_cheetah", help="folder of all runs")
    parser.add_argument("--curve", help="write the learning curve to CURVE.json and CURVE.png")
    arguments = parser.parse_args()
    config = Config(arguments.seed, parallel=arguments.parallel, n_steps=arguments.n_steps)
    result, _ = train(config, arguments.runs)
    if arguments.curve:
        save_curve(arguments.curve, config, result)
