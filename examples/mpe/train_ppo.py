"""Train PPO on simple_spread: three agents cover three landmarks, with separate models or a shared one.

The curves in this folder were written by this command, and the same with `shared`:

    python examples/mpe/train_ppo.py independent --seeds 0 1 2 --curve examples/mpe/independent
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from mpe2 import simple_spread_v3
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import MultiAgentTrajInfo
from parllel.envs import ParallelEnvAdapter
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.samplers import EvalSampler
from parllel.torch import MultiAgentPPO, TorchHandler, agents_for
from parllel.transforms import EstimateMultiAgentAdvantage, NormalizeMultiAgentAdvantage
from parllel_patterns import (
    CurveFile,
    PpoParameters,
    allocate_eval_samples,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main_for_each,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    sharing: Literal["independent", "shared"] = "shared"  # a policy for each agent, or one for all
    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the models, such as "cuda"
    T: int = 128  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 200_000  # environment steps to train for
    log_interval_steps: int = 20_480  # environment steps between rows of the log
    n_eval_episodes: int = 96  # episodes of an evaluation
    discount: float = 0.95  # of rewards, per step
    gae_lambda: float = 0.95  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(learning_rate=1e-3, entropy_loss_coeff=0.01)
    )


def make_env(**options: Any) -> gym.Env[Any, Any]:
    """Make the environment. The reward of a step is summed over agents."""
    return ParallelEnvAdapter(simple_spread_v3.parallel_env(max_cycles=25, **options))


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    cages = build_cages(make_env, config.B, seeds=seeds, traj_info=MultiAgentTrajInfo, stack=stack)
    agent = agents_for(
        cages[0].spaces,
        seeds=seeds,
        sharing=config.sharing,
        hidden_sizes=(64, 64),
        device=config.device,
    )
    estimate = EstimateMultiAgentAdvantage(config.discount, config.gae_lambda)
    transforms = [estimate, NormalizeMultiAgentAdvantage()]
    sampler = build_sampler(batch_spec, cages, TorchHandler(agent), batch_transforms=transforms)
    make_eval_env = partial(make_env, render_mode="rgb_array")
    eval_cages = build_cages(make_eval_env, config.B, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        MultiAgentPPO(agent, **config.ppo, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, config.n_eval_episodes),
        folder=folder,
        seeds=seeds,
        console=console,
    )


def random_policy(n_episodes: int) -> dict[str, float]:
    """Return the mean return of a random policy, and its standard error."""
    cages = build_cages(make_env, 16, seeds=Seeds(1))
    handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=1))
    with EvalSampler(cages, handler, allocate_eval_samples(cages), n_episodes) as sampler:
        returns = [traj.return_ for traj in sampler.collect_batch(0)[1]]
    error = float(np.std(returns, ddof=1) / np.sqrt(n_episodes))
    return {"mean": float(np.mean(returns)), "standard_error": error}


if __name__ == "__main__":
    argv = sys.argv[1:]
    for word in {"independent", "shared"}.intersection(argv) if "--sharing" not in argv else ():
        argv.insert(argv.index(word), "--sharing")
    curve = CurveFile()
    name, each = (lambda c: f"{c.sharing}-seed{c.seed}"), {"--seeds": "--seed"}
    runs = main_for_each(build, Config, each, base="runs/mpe", name=name, argv=argv, curve=curve)
    random, curves = random_policy(n_episodes=192), {}
    for result, folder in runs:
        config = folder.read_record().config
        curves[f"seed {config['seed']}"] = result.curves["evaluation"]
        above = (result.evaluation_return - random["mean"]) / random["standard_error"]
        print(f"{above:.1f} standard errors above a random policy: {folder.path}")
    title, reference = f"simple_spread, {config['sharing']}", {"random policy": random["mean"]}
    curve.write(runs, curves, title, reference, random=random)
