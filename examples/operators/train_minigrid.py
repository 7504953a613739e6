"""Train PPO to reach the goal of a MiniGrid room, until solved."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from room import make_room  # type: ignore[import-not-found]

from parllel import BatchSpec, Seeds
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PpoParameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    size: int = 6  # of the room, walls included: 5 or 6
    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the model, such as "cuda"
    T: int = 64  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 150_000  # environment steps to train for
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    n_eval_episodes: int = 32  # episodes of an evaluation
    target_return: float = 0.95  # mean evaluation return at which the run ends; 1 at best
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(learning_rate=1e-3, epochs=4, minibatches=4)
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    make_env = partial(make_room, config.size)
    cages = build_cages(make_env, config.B, seeds=seeds, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(64, 64), device=config.device)
    transforms = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    sampler = build_sampler(batch_spec, cages, TorchHandler(agent), [], transforms)
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
    result, _ = main(build, Config, base="runs/minigrid", name=lambda c: f"ppo-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
