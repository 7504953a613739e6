"""Train PPO as the root of a hierarchy of agents that communicate over a broker, until solved."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from signals import BEST_RETURN, Cut, make_signals  # type: ignore[import-not-found]

from parllel import BatchSpec, Seeds
from parllel.cages import VectorEnvFactory
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

    cut: Cut = "none"  # messages of this direction carry nothing
    seed: int = 0  # source of all random numbers
    parallel: bool = False  # spread environments over the cores
    T: int = 16  # steps of each environment in a batch
    B: int = 64  # parallel environments
    n_steps: int = 32_768  # environment steps to train for
    log_interval_steps: int = 4_096  # environment steps between rows of the log
    n_eval_episodes: int = 64  # episodes of an evaluation
    target_return: float = 0.95 * BEST_RETURN  # mean evaluation return at which the run ends
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(learning_rate=3e-3, epochs=4, minibatches=4)
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    make_env = VectorEnvFactory(partial(make_signals, cut=config.cut))
    cages = build_cages(make_env, config.B, seeds=seeds, parallel=config.parallel, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(64, 64))
    # The correct settings depend only on the last observation: no reward depends on an earlier action.
    transforms = [EstimateAdvantage(discount=0.0, gae_lambda=0.0), NormalizeAdvantage()]
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
    result, _ = main(build, Config, base="runs/signals", name=lambda c: f"ppo-{c.cut}-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
