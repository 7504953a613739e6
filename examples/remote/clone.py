"""Clone an expert into a smaller policy, trained on the expert's actions in the states it visits (DAgger).

The expert is any agent specification: `--expert http://127.0.0.1:8081` asks a server, once per batch;
`--expert runs/cartpole/ppo-seed0` loads the policy of a run.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.policies import LabelActions, policy_of
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import BehaviorCloning, TorchHandler, agent_for
from parllel_patterns import build_cages, build_eval_sampler, build_logger, build_sampler, main


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    expert: str = "http://127.0.0.1:8081"  # a URL, the folder of a run, file.py:name ...
    env: str = "CartPole-v1"  # of both
    hidden_sizes: tuple[int, ...] = (16,)  # of the learning policy
    seed: int = 0  # source of all random numbers
    T: int = 128  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 100_000  # steps to label
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    learning_rate: float = 3e-3  # of Adam
    epochs: int = 10  # passes over a batch


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    make_env = partial(gym.make, config.env)
    cages = build_cages(make_env, config.B, seeds=seeds, stack=stack)
    spaces = cages[0].spaces
    expert = stack.enter_context(policy_of(config.expert, spaces.observation, spaces.action))
    agent = agent_for(spaces, seeds=seeds, hidden_sizes=config.hidden_sizes)
    sampler = build_sampler(batch_spec, cages, TorchHandler(agent), [], [LabelActions(expert)])
    n_eval = config.n_eval_episodes
    eval_cages = build_cages(make_env, n_eval, seeds=seeds, name="evaluation", stack=stack)
    cloning = BehaviorCloning(
        agent,
        learning_rate=config.learning_rate,
        epochs=config.epochs,
        seed=seeds.integer("algorithm"),
    )
    return OnPolicyRunner(
        batch_spec,
        sampler,
        cloning,
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
    result, _ = main(build, Config, base="runs/clone", name=lambda c: f"clone-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
