"""Train R2D1 on CartPole without velocities, which only a recurrent network can infer.

The curves r2d1.json and r2d1.png in this folder were written by:

    python examples/cartpole_memory/train_r2d1.py --seeds 0 1 2 --curve examples/cartpole_memory/r2d1
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.replays import SequenceReplay
from parllel.runners import OffPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import R2D1, RecurrentQAgent, RecurrentQModel, TorchHandler
from parllel.transforms import FinalObservations
from parllel_patterns import (
    CurveFile,
    R2d1Parameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main_for_each,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run.

    Attributes:
        T: steps of each environment in a batch; a sequence begins with a batch
    """

    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the model, such as "cuda"
    memory: Literal["lstm", "gru"] = "lstm"  # kind of the memory
    prev_action: bool = True  # whether the network sees the last action
    T: int = 20
    B: int = 16  # parallel environments
    n_steps: int = 500_000  # environment steps to train for
    log_interval_steps: int = 20_480  # environment steps between rows of the log
    n_eval_episodes: int = 32  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    hidden_sizes: tuple[int, ...] = (64,)  # of the network
    rnn_size: int = 64  # of the memory
    dueling: bool = True  # whether values of states and advantages of actions are learned apart
    discount: float = 0.99  # of rewards, per step
    n_step: int = 3  # rewards that a target adds up
    replay_steps: int = 100_000  # environment steps that the replay holds
    save_replay: bool = True  # whether checkpoints include the replay
    batch_size: int = 32  # sequences of a gradient step
    alpha: float = 0.9  # how much sequences with large errors are preferred
    warm_up: int = 20  # steps of a sequence that only compute the state of the memory
    length: int = 20  # steps of a sequence to learn from
    replay_ratio: float = 0.03125  # gradient steps per environment step
    learning_starts: int = 5_000  # environment steps before the first gradient step
    r2d1: R2d1Parameters = field(
        default_factory=lambda: R2d1Parameters(
            learning_rate=1e-3,
            target_update_interval=100,
            clip_grad_norm=10.0,
            final_epsilon=0.02,
            epsilon_anneal_steps=50_000,
        )
    )


def make_env(**options: Any) -> gym.Env[Any, Any]:
    """Make CartPole with the positions of cart and pole only."""
    env = gym.make("CartPole-v1", **options)
    space = env.observation_space
    shown = gym.spaces.Box(space.low[::2], space.high[::2])  # type: ignore[attr-defined]
    return gym.wrappers.TransformObservation(env, lambda seen: np.array(seen[::2]), shown)


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OffPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(
        make_env,
        config.B,
        seeds=seeds,
        traj_info=traj_info,
        reset_automatically=False,
        stack=stack,
    )
    n_actions = int(cages[0].spaces.action.n)  # type: ignore[attr-defined]
    model = RecurrentQModel(
        cages[0].spaces.observation.shape or (),
        n_actions,
        config.hidden_sizes,
        config.rnn_size,
        cell=config.memory,
        dueling=config.dueling,
        prev_action=config.prev_action,
        seed=seeds.integer("model"),
    )
    agent = RecurrentQAgent(
        model,
        n_actions,
        prev_action=config.prev_action,
        seed=seeds.integer("agent"),
        device=config.device,
    )
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent),
        batch_transforms=[FinalObservations()],
        n_batches=-(-config.replay_steps // batch_spec.size),  # rounded up
    )
    replay = SequenceReplay(
        sampler.samples,
        batch_size=config.batch_size,
        warm_up=config.warm_up,
        length=config.length,
        discount=config.discount,
        n_step=config.n_step,
        alpha=config.alpha,
        seed=seeds.integer("replay"),
    )
    eval_cages = build_cages(
        partial(make_env, render_mode="rgb_array"),
        config.n_eval_episodes,
        seeds=seeds,
        name="evaluation",
        traj_info=traj_info,
        stack=stack,
    )
    return OffPolicyRunner(
        batch_spec,
        sampler,
        R2D1(agent, **config.r2d1),
        replay,
        replay_ratio=config.replay_ratio,
        learning_starts=config.learning_starts,
        save_replay=config.save_replay,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, config.n_eval_episodes),
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
        base="runs/cartpole_memory",
        name=lambda c: f"r2d1-seed{c.seed}",
        curve=curve,
    )
    curves = {
        f"seed {folder.read_record().config['seed']}": result.curves["evaluation"]
        for result, folder in runs
    }
    curve.write(runs, curves, title="R2D1 on CartPole without velocities")
