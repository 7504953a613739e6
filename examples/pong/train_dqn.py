"""Train DQN on Pong from pixels, with a prioritised replay that stores each frame only once.

The curves dqn.json and dqn.png in this folder show the first two hours of a run. To repeat it:

    timeout -s TERM 7200 python examples/pong/train_dqn.py --n-steps 3000000 --curve examples/pong/dqn
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ale_py
import cv2
import gymnasium as gym
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.replays import PrioritizedReplay
from parllel.runners import OffPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import CONVOLUTIONS_2013, DQN, TorchHandler, q_agent_for
from parllel.transforms import ClipRewards, FinalObservations
from parllel_patterns import (
    CurveFile,
    DqnParameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run. A step is one action, that is, four frames of the game.

    Attributes:
        bfloat16: compute the convolutions in bfloat16: more than twice as fast on processors with
            instructions for it (`grep avx512_bf16 /proc/cpuinfo`).
        threads: of PyTorch. More threads help on an otherwise idle machine.
        replay_steps: environment steps that the replay holds, of 7 kB each.
    """

    seed: int = 0  # source of all random numbers
    env_id: str = "PongNoFrameskip-v4"  # any Atari game without frame skip
    max_frames: int = 108_000  # limit of an episode
    parallel: bool = False  # spread environments over the cores
    device: str = "cpu"  # of the model, such as "cuda"
    bfloat16: bool = False
    threads: int = 1
    T: int = 16  # steps of each environment in a batch
    B: int = 8  # parallel environments
    n_steps: int = 2_000_000  # environment steps to train for
    log_interval_steps: int = 25_600  # environment steps between rows of the log
    n_eval_episodes: int = 8  # episodes of an evaluation
    target_return: float = 20.0  # mean evaluation return at which the run ends
    dueling: bool = True  # whether values of states and advantages of actions are learned apart
    discount: float = 0.99  # of rewards, per step
    n_step: int = 3  # rewards that a target adds up
    replay_steps: int = 100_000
    save_replay: bool = True  # whether checkpoints include the replay
    alpha: float = 0.5  # how much transitions with large errors are preferred
    batch_size: int = 32  # transitions of a gradient step
    replay_ratio: float = 0.25  # gradient steps per environment step
    learning_starts: int = 20_000  # environment steps before the first gradient step
    dqn: DqnParameters = field(default_factory=lambda: DqnParameters(epsilon_anneal_steps=150_000))


def make_env(env_id: str, max_frames: int, **options: Any) -> gym.Env[Any, Any]:
    """Make a game with the preprocessing of Mnih et al. 2015: stacks of four 84 x 84 grey images.

    An episode starts with up to 30 no-op frames and is truncated after half an hour of play. Each action
    is repeated for four frames.
    """
    cv2.setNumThreads(1)  # images are too small to benefit from threads
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gym.register_envs(ale_py)
    env = gym.make(env_id, obs_type="grayscale", max_num_frames_per_episode=max_frames, **options)
    return FrameStackObservation(AtariPreprocessing(env), 4)


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OffPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    factory = partial(make_env, config.env_id, config.max_frames, render_mode="rgb_array")
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(
        factory,
        config.B,
        seeds=seeds,
        parallel=config.parallel,
        traj_info=traj_info,
        stack=stack,
    )
    agent = q_agent_for(
        cages[0].spaces,
        seeds=seeds,
        dueling=config.dueling,
        convolutions=CONVOLUTIONS_2013,  # half the time of the 2015 ones, and sufficient for Pong
        compute_dtype=torch.bfloat16 if config.bfloat16 else None,
        device=config.device,
    )
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent, threads=config.threads),
        batch_transforms=[ClipRewards(-1, 1), FinalObservations()],
        frames=4,
        n_batches=-(-config.replay_steps // batch_spec.size),  # rounded up
    )
    replay = PrioritizedReplay(
        sampler.samples,
        batch_size=config.batch_size,
        discount=config.discount,
        n_step=config.n_step,
        reward="env.clipped_reward",
        alpha=config.alpha,
        seed=seeds.integer("replay"),
        beta_draws=round(config.n_steps * config.replay_ratio),
    )
    eval_cages = build_cages(
        factory,
        config.n_eval_episodes,
        seeds=seeds,
        name="evaluation",
        traj_info=traj_info,
        stack=stack,
    )
    return OffPolicyRunner(
        batch_spec,
        sampler,
        DQN(agent, **config.dqn),
        replay,
        replay_ratio=config.replay_ratio,
        learning_starts=config.learning_starts,
        save_replay=config.save_replay,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, config.n_eval_episodes),
        target_return=config.target_return,
        checkpoint_interval_s=300.0,  # the replay is large
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    curve = CurveFile()
    result, folder = main(
        build, Config, base="runs/pong", name=lambda c: f"dqn-seed{c.seed}", curve=curve
    )
    curve.write([(result, folder)], result.curves, title="DQN on Pong")
    raise SystemExit(result.exit_status)
