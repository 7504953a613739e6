"""Train PPO on CartPole, sampling the next batch in another process while learning from this one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.runners import AsynchronousRunner
from parllel.runs import RunFolder
from parllel.samplers import AsynchronousSampler, BatchSampler, EvalSampler
from parllel.torch import PPO, SmallPolicyHandler, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PpoParameters,
    allocate_eval_samples,
    build_cages,
    build_logger,
    build_sampler,
    main,
)

MAKE_ENV = partial(gym.make, "CartPole-v1", render_mode="rgb_array")


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    seed: int = 0  # source of all random numbers
    T: int = 128  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 200_000  # environment steps to train for
    max_staleness: int = 1  # how many updates old the weights may be
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=1e-3, epochs=10, minibatches=8, kl_limit=0.01
        )
    )


def build_training_sampler(config: Config, seeds: Seeds) -> BatchSampler:
    """Build the sampler. Runs in the sampling process."""
    cages = build_cages(MAKE_ENV, config.B, seeds=seeds)
    agent = agent_for(cages[0].spaces, seeds=seeds, policy_gain=0.0)
    transforms = [EstimateAdvantage(config.discount, config.gae_lambda), NormalizeAdvantage()]
    batch_spec = BatchSpec(config.T, config.B)
    # Each batch is written where the learner reads it, instead of being copied there.
    return build_sampler(
        batch_spec, cages, SmallPolicyHandler(agent), [], transforms, switching=True
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> AsynchronousRunner:
    """Build a run. Anything to close goes on the stack."""
    seeds = Seeds(config.seed)
    eval_cages = build_cages(
        MAKE_ENV, config.n_eval_episodes, seeds=seeds, name="evaluation", stack=stack
    )
    agent = agent_for(eval_cages[0].spaces, seeds=seeds, policy_gain=0.0)
    # Seeds depend only on their names, so the copy in the other process does not need those drawn here.
    make = partial(build_training_sampler, config, Seeds(config.seed))
    sampler = stack.enter_context(
        AsynchronousSampler(make, agent=agent, max_staleness=config.max_staleness)
    )
    eval_samples = allocate_eval_samples(eval_cages)
    return AsynchronousRunner(
        BatchSpec(config.T, config.B),
        sampler,
        PPO(agent, **config.ppo, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=EvalSampler(
            eval_cages, TorchHandler(agent), eval_samples, config.n_eval_episodes
        ),
        target_return=config.target_return,
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    result, _ = main(build, Config, base="runs/cartpole_async", name=lambda c: f"ppo-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
