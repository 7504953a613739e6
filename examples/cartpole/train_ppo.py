"""Train PPO on CartPole until it is solved: `make train`, or `make train SEED=1 ARGS=--parallel`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.runners import OnPolicyRunner, RunFolder
from parllel.samplers import BasicSampler, EvalSampler, plan_sampling
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
    ppo: PpoParameters = field(default_factory=lambda: PpoParameters(learning_rate=1e-3, epochs=8))


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put a run together, in the order of the data; what must be closed goes on the stack."""
    torch.set_num_threads(1)  # networks this small are faster on one
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

    make_eval_env = partial(make_env, render_mode="rgb_array")
    eval_cages = build_cages(
        make_eval_env, config.B, seeds=seeds, name="evaluation", traj_info=traj_info
    )
    for cage in eval_cages:
        stack.callback(cage.close)
    eval_sampler = EvalSampler(
        eval_cages, handler, allocate_eval_samples(eval_cages), config.n_eval_episodes
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
        target_return=config.target_return,
        state_parts={"agent": agent},
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    result, _ = main(build, Config, base="runs/cartpole", name=lambda c: f"ppo-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
