"""Train PPO with continuous actions on HalfCheetah-v5, observations and rewards normalised.

The curve beside this file was made by

    python examples/half_cheetah/train_ppo.py --seed 0 --curve examples/half_cheetah/curve
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.runners import OnPolicyRunner, RunFolder, plot_learning_curve, versions
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
    PpoParameters,
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_logger,
    main,
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
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=3e-4, learning_rate_anneal_steps=1_000_000, epochs=10, minibatches=16
        )
    )


def make_env(env_id: str, **options: Any) -> gym.Env[Any, Any]:
    """Make the environment; actions are drawn from a normal distribution and clipped here."""
    return gym.wrappers.ClipAction(gym.make(env_id, **options))


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put a run together, in the order of the data; what must be closed goes on the stack."""
    torch.set_num_threads(1)  # networks this small are faster on one
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

    eval_factory = partial(factory, render_mode="rgb_array")
    eval_cages = build_cages(eval_factory, 5, seeds=seeds, name="evaluation", traj_info=traj_info)
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
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--curve", help="write the learning curve to CURVE.json and CURVE.png")
    own, argv = parser.parse_known_args()
    result, folder = main(
        build, Config, base="runs/half_cheetah", name=lambda c: f"ppo-seed{c.seed}", argv=argv
    )
    if own.curve and result.stopped_by is None:
        config = folder.read_record().config
        about = {"config": config, "versions": versions(), "curves": result.curves}
        Path(f"{own.curve}.json").write_text(json.dumps(about, indent=1) + "\n")
        plot_learning_curve(f"{own.curve}.png", result.curves, f"PPO on {config['env_id']}")
    raise SystemExit(result.exit_status)
