"""A run that learns to beat an opponent: one that is made for tests, or the policy of another run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.policies import OpponentEnv
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.testing import FrequencyPolicy, RockPaperScissorsEnv
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PPO_DEFAULTS,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
)

SPEC = BatchSpec(T=32, B=16)


@dataclass(frozen=True)
class Config:
    """What can be changed about the run."""

    seed: int = 0
    opponent: str | None = None
    n_batches: int = 16
    n_episodes: int = 160


def make_env(opponent: str | None = None) -> OpponentEnv:
    """Make a game against a run's policy, or else one for tests."""
    policy = FrequencyPolicy if opponent is None else opponent
    return OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": policy})


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put the run together."""
    seeds, make = Seeds(config.seed), partial(make_env, config.opponent)
    cages = build_cages(make, SPEC.B, seeds=seeds, parallel=False, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(32,))
    transforms = [EstimateAdvantage(0.5, 0.95), NormalizeAdvantage()]
    sampler = build_sampler(SPEC, cages, TorchHandler(agent), [], transforms)
    eval_cages = build_cages(make, 16, seeds=seeds, name="evaluation", parallel=False, stack=stack)
    settings = {**PPO_DEFAULTS, "learning_rate": 3e-3, "epochs": 4}
    return OnPolicyRunner(
        SPEC,
        sampler,
        PPO(agent, **settings, seed=seeds.integer("algorithm")),
        n_steps=config.n_batches * SPEC.size,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.n_batches * SPEC.size,
        eval_sampler=build_eval_sampler(eval_cages, sampler, config.n_episodes),
        folder=folder,
        seeds=seeds,
    )
