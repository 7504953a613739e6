"""Train PPO in JAX on CartPole until it is solved. PyTorch is not imported.

The curves in this folder were written by:

    python examples/cartpole_jax/train_ppo.py --seeds 0 1 2 --curve examples/cartpole_jax/curve
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.jax import PPO, agent_for
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    CurveFile,
    PpoParameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main_for_each,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    seed: int = 0  # source of all random numbers
    parallel: bool = False  # spread environments over the cores
    device: str = "cpu"  # of the model, such as "gpu"
    T: int = 128  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 150_000  # environment steps to train for
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=1e-3,
            learning_rate_anneal_steps=150_000,
            epochs=10,
            minibatches=8,
            kl_limit=0.01,
        )
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    make_env = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
    cages = build_cages(make_env, config.B, seeds=seeds, parallel=config.parallel, stack=stack)
    # Without the gain of 0 an untrained policy may balance the pole by luck.
    agent = agent_for(
        cages[0].spaces,
        seeds=seeds,
        hidden_sizes=(64, 64),
        policy_gain=0.0,
        device=config.device,
    )
    transforms = [EstimateAdvantage(config.discount, config.gae_lambda), NormalizeAdvantage()]
    sampler = build_sampler(batch_spec, cages, NumpyHandler(agent), [], transforms)
    n_eval = config.n_eval_episodes
    eval_cages = build_cages(make_env, n_eval, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        PPO(agent, **config.ppo, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, n_eval),
        target_return=config.target_return,
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    curve = CurveFile()
    runs = main_for_each(
        build,
        Config,
        {"--seeds": "--seed"},
        base="runs/cartpole_jax",
        name=lambda c: f"ppo-seed{c.seed}",
        curve=curve,
    )
    curves = {
        f"seed {folder.read_record().config['seed']}": result.curves["evaluation"]
        for result, folder in runs
    }
    curve.write(runs, curves, title="PPO in JAX on CartPole")
    results = [result for result, _ in runs]
    status = max(result.exit_status for result in results)
    raise SystemExit(status or int(not all(result.solved for result in results)))
