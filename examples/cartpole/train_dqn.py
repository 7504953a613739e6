"""Train DQN on CartPole until it is solved.

The curves dqn.json and dqn.png in this folder were written by:

    python examples/cartpole/train_dqn.py --seeds 0 1 2 --curve examples/cartpole/dqn
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
from parllel.torch import DQN, TorchHandler, q_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import (
    CurveFile,
    DqnParameters,
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
    device: str = "cpu"  # of the model, such as "cuda"
    T: int = 32  # steps of each environment in a batch
    B: int = 8  # parallel environments
    n_steps: int = 150_000  # environment steps to train for
    log_interval_steps: int = 5_120  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    hidden_sizes: tuple[int, ...] = (256, 256)  # of the network
    discount: float = 0.99  # of rewards, per step
    replay_steps: int = 100_000  # environment steps that the replay holds
    save_replay: bool = True  # whether checkpoints include the replay
    batch_size: int = 64  # transitions of a gradient step
    replay_ratio: float = 0.5  # gradient steps per environment step
    learning_starts: int = 1_000  # environment steps before the first gradient step
    dqn: DqnParameters = field(
        default_factory=lambda: DqnParameters(
            learning_rate=5e-4,
            target_update_interval=1,
            tau=0.01,
            final_epsilon=0.04,
            epsilon_anneal_steps=8_000,
        )
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OffPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    make_env = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(make_env, config.B, seeds=seeds, traj_info=traj_info, stack=stack)
    agent = q_agent_for(
        cages[0].spaces, seeds=seeds, hidden_sizes=config.hidden_sizes, device=config.device
    )
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
    n_eval = config.n_eval_episodes
    eval_cages = build_cages(
        make_env, n_eval, seeds=seeds, name="evaluation", traj_info=traj_info, stack=stack
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
        base="runs/cartpole",
        name=lambda c: f"dqn-seed{c.seed}",
        curve=curve,
    )
    curves = {
        f"seed {folder.read_record().config['seed']}": result.curves["evaluation"]
        for result, folder in runs
    }
    curve.write(runs, curves, title="DQN on CartPole")
    raise SystemExit(int(not all(result.solved for result, _ in runs)))
