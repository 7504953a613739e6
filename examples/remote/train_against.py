"""Train PPO against an opponent on a server, for example examples/remote/reaction.py."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.policies import OpponentEnv
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.testing import RockPaperScissorsEnv
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

    opponent: str = "http://127.0.0.1:8082"  # a URL, the folder of a run, file.py:name ...
    seed: int = 0  # source of all random numbers
    T: int = 32  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 20_480  # environment steps to train for
    log_interval_steps: int = 5_120  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    ppo: PpoParameters = field(default_factory=lambda: PpoParameters(learning_rate=3e-3))


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)

    def make_env() -> OpponentEnv:
        # A separate policy and connection per environment, because they are at different steps.
        return OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": config.opponent})

    cages = build_cages(make_env, config.B, seeds=seeds, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(32,))
    transforms = [EstimateAdvantage(0.5, 0.95), NormalizeAdvantage()]
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
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    main(build, Config, base="runs/against", name=lambda c: f"ppo-seed{c.seed}")
