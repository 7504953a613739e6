"""Train SAC with continuous actions on HalfCheetah-v5.

The curve in this folder was written by:

    python examples/half_cheetah/train_sac.py --n-steps 60000 --curve examples/half_cheetah/sac
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.replays import UniformReplay
from parllel.runners import OffPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import SAC, TorchHandler, sac_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import (
    CurveFile,
    SacParameters,
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
    env_id: str = "HalfCheetah-v5"  # any with a Box of actions with finite bounds
    device: str = "cpu"  # of the models, such as "cuda"
    threads: int = 1  # of PyTorch
    T: int = 8  # steps of each environment in a batch
    B: int = 1  # parallel environments
    n_steps: int = 1_000_000  # environment steps to train for
    log_interval_steps: int = 10_000  # environment steps between rows of the log
    n_eval_episodes: int = 5  # episodes of an evaluation
    hidden_sizes: tuple[int, ...] = (256, 256)  # of the networks
    discount: float = 0.99  # of rewards, per step
    replay_steps: int = 1_000_000  # environment steps that the replay holds
    save_replay: bool = True  # whether checkpoints include the replay
    batch_size: int = 256  # transitions of a gradient step
    replay_ratio: float = 1.0  # gradient steps per environment step
    learning_starts: int = 10_000  # environment steps before the first gradient step
    sac: SacParameters = field(default_factory=SacParameters)


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OffPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    factory = partial(gym.make, config.env_id, render_mode="rgb_array")
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(factory, config.B, seeds=seeds, traj_info=traj_info, stack=stack)
    agent = sac_agent_for(
        cages[0].spaces, seeds=seeds, hidden_sizes=config.hidden_sizes, device=config.device
    )
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent, threads=config.threads),
        batch_transforms=[FinalObservations()],
        n_batches=-(-config.replay_steps // batch_spec.size),  # rounded up
    )
    replay = UniformReplay(
        sampler.samples,
        batch_size=config.batch_size,
        discount=config.discount,
        seed=seeds.integer("replay"),
    )
    n_eval = config.n_eval_episodes
    eval_cages = build_cages(
        factory, n_eval, seeds=seeds, name="evaluation", traj_info=traj_info, stack=stack
    )
    return OffPolicyRunner(
        batch_spec,
        sampler,
        SAC(agent, **config.sac, seed=seeds.integer("algorithm")),
        replay,
        replay_ratio=config.replay_ratio,
        learning_starts=config.learning_starts,
        save_replay=config.save_replay,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, n_eval),
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    curve = CurveFile()
    result, folder = main(
        build, Config, base="runs/half_cheetah", name=lambda c: f"sac-seed{c.seed}", curve=curve
    )
    env_id = folder.read_record().config["env_id"]
    curve.write([(result, folder)], result.curves, title=f"SAC on {env_id}")
    raise SystemExit(result.exit_status)
