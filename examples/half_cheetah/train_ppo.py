"""Train PPO with continuous actions on HalfCheetah-v5, with normalised observations and rewards.

The curve in this folder was written by:

    python examples/half_cheetah/train_ppo.py --seed 0 --curve examples/half_cheetah/curve
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec
from parllel.cages import TrajInfo
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import PPO, Learners, TorchHandler, agent_for
from parllel.transforms import (
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
)
from parllel_patterns import (
    CurveFile,
    PpoParameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    seed: int = 0  # source of all random numbers
    env_id: str = "HalfCheetah-v5"  # any with a Box of actions
    parallel: bool = False  # spread environments over the cores
    device: str = "cpu"  # of the model, such as "cuda"
    learners: int = 1  # processes that learn together, each with its share of the environments
    T: int = 256  # steps of each environment in a batch
    B: int = 8  # parallel environments
    n_steps: int = 1_000_000  # environment steps to train for
    log_interval_steps: int = 51_200  # environment steps between rows of the log
    n_eval_episodes: int = 10  # episodes of an evaluation
    hidden_sizes: tuple[int, ...] = (64, 64)  # of the networks
    initial_log_std: float = -1.0  # of actions, before training
    discount: float = 0.98  # of rewards, per step
    gae_lambda: float = 0.92  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=3e-4, learning_rate_anneal_steps=1_000_000, epochs=10, minibatches=16
        )
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    learners = stack.enter_context(Learners(config.learners, build, config))
    seeds = learners.seeds(config.seed)
    batch_spec = learners.share_of(BatchSpec(config.T, config.B))
    factory = partial(gym.make, config.env_id, render_mode="rgb_array")
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(
        factory,
        batch_spec.B,
        seeds=seeds,
        parallel=config.parallel,
        traj_info=traj_info,
        stack=stack,
    )
    agent = agent_for(
        cages[0].spaces,
        seeds=seeds,
        hidden_sizes=config.hidden_sizes,
        initial_log_std=config.initial_log_std,
        device=config.device,
    )
    step_transforms = [NormalizeObservations()]
    batch_transforms = [
        NormalizeRewards(config.discount),
        EstimateAdvantage(config.discount, config.gae_lambda, reward="env.normalized_reward"),
        NormalizeAdvantage(),
    ]
    sampler = build_sampler(
        batch_spec, cages, TorchHandler(agent), step_transforms, batch_transforms
    )
    eval_cages = build_cages(
        factory, 5, seeds=seeds, name="evaluation", traj_info=traj_info, stack=stack
    )
    return OnPolicyRunner(
        batch_spec,
        sampler,
        PPO(agent, **config.ppo, seed=seeds.integer("algorithm")),
        learners=learners,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, config.n_eval_episodes),
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    curve = CurveFile()
    result, folder = main(
        build, Config, base="runs/half_cheetah", name=lambda c: f"ppo-seed{c.seed}", curve=curve
    )
    env_id = folder.read_record().config["env_id"]
    curve.write([(result, folder)], result.curves, title=f"PPO on {env_id}")
    raise SystemExit(result.exit_status)
