"""Train with tuned settings by name: `train.py cartpole-ppo`. Without a name, lists the settings.

The table of docs/gallery.md shows the returns that they reach.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm, OffPolicyAlgorithm
from parllel.cages import CageInterface, TrajInfo
from parllel.replays import UniformReplay
from parllel.runners import OffPolicyRunner, OnPolicyRunner, Runner
from parllel.runs import RunFolder
from parllel.samplers import BatchSampler
from parllel.torch import (
    DQN,
    PPO,
    SAC,
    QAgent,
    SacAgent,
    TorchHandler,
    agent_for,
    q_agent_for,
    sac_agent_for,
)
from parllel.transforms import (
    BatchTransform,
    EstimateAdvantage,
    FinalObservations,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
    StepTransform,
)
from parllel_patterns import (
    TUNED,
    TunedConfig,
    TunedDqn,
    TunedPpo,
    TunedSac,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main_for_each,
    make_tuned_env,
    tuned,
)


def build(
    config: TunedConfig, stack: ExitStack, folder: RunFolder, console: Console | None
) -> Runner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    factory = partial(make_tuned_env, config.env_id)
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(factory, config.B, seeds=seeds, traj_info=traj_info, stack=stack)
    runner: Callable[..., Runner] = OnPolicyRunner
    if isinstance(config, TunedPpo):
        sampler, algorithm = on_policy(config, cages, seeds)
    else:
        sampler, algorithm, replay = off_policy(config, cages, seeds)
        runner = partial(
            OffPolicyRunner,
            replay=replay,
            replay_ratio=config.replay_ratio,
            learning_starts=config.learning_starts,
        )
    n_eval = config.n_eval_episodes
    eval_cages = build_cages(
        factory, min(n_eval, 16), seeds=seeds, name="evaluation", traj_info=traj_info, stack=stack
    )
    return runner(
        batch_spec,
        sampler,
        algorithm,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, n_eval),
        folder=folder,
        seeds=seeds,
        console=console,
    )


def on_policy(
    config: TunedPpo, cages: list[CageInterface], seeds: Seeds
) -> tuple[BatchSampler, Algorithm]:
    """Return the sampler and the algorithm of a run with PPO."""
    agent = agent_for(
        cages[0].spaces,
        seeds=seeds,
        hidden_sizes=config.hidden_sizes,
        initial_log_std=config.initial_log_std,
        device=config.device,
    )
    step_transforms: list[StepTransform] = []
    batch_transforms: list[BatchTransform] = []
    reward = "env.reward"
    if config.normalize:
        step_transforms.append(NormalizeObservations())
        batch_transforms.append(NormalizeRewards(config.discount))
        reward = "env.normalized_reward"
    batch_transforms += [
        EstimateAdvantage(config.discount, config.gae_lambda, reward=reward),
        NormalizeAdvantage(),
    ]
    batch_spec, handler = BatchSpec(config.T, config.B), TorchHandler(agent)
    sampler = build_sampler(batch_spec, cages, handler, step_transforms, batch_transforms)
    return sampler, PPO(agent, **config.ppo, seed=seeds.integer("algorithm"))


def off_policy(
    config: TunedDqn | TunedSac, cages: list[CageInterface], seeds: Seeds
) -> tuple[BatchSampler, OffPolicyAlgorithm, UniformReplay]:
    """Return the sampler, the algorithm and the replay of a run with DQN or SAC."""
    spaces, batch_spec = cages[0].spaces, BatchSpec(config.T, config.B)
    networks: Any = {"hidden_sizes": config.hidden_sizes, "device": config.device}
    agent: QAgent | SacAgent
    algorithm: OffPolicyAlgorithm
    if isinstance(config, TunedDqn):
        agent = q_agent_for(spaces, seeds=seeds, **networks)
        algorithm = DQN(agent, **config.dqn)
    else:
        agent = sac_agent_for(spaces, seeds=seeds, **networks)
        algorithm = SAC(agent, **config.sac, seed=seeds.integer("algorithm"))
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent),
        batch_transforms=[FinalObservations()],
        n_batches=-(-config.replay_steps // batch_spec.size),  # rounded up
    )
    replay = UniformReplay(
        sampler.samples,
        batch_size=config.batch_size,
        discount=config.discount,
        seed=seeds.integer("replay"),
    )
    return sampler, algorithm, replay


def chosen(argv: list[str]) -> tuple[str, list[str]]:
    """Return the name of the settings and the flags.

    Raises:
        SystemExit: without a name, after listing them; with status 2 for an unknown name.
    """
    if not argv or argv[0].startswith("-"):
        print("usage: train.py NAME [--seeds SEED ...] [FLAG ...]; train.py NAME --help\n")
        for name, config in TUNED.items():
            print(f"{name:22}{config.env_id}, {config.n_steps:,} steps")
        raise SystemExit(0 if not argv or argv[0] in ("-h", "--help") else 2)
    try:
        tuned(argv[0])
    except ValueError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    return argv[0], argv[1:]


if __name__ == "__main__":
    name, flags = chosen(sys.argv[1:])
    main_for_each(
        build,
        type(tuned(name)),
        {"--seeds": "--seed"},
        defaults=tuned(name),
        base="runs/gallery",
        name=lambda c: f"{name}-seed{c.seed}",
        argv=flags,
    )
