"""Train PPO as the devices below a grid, or as its feeders, that communicate over a broker, until solved.

    python examples/messaging/train_devices.py
    python examples/messaging/train_devices.py --sharing independent
    python examples/messaging/train_devices.py --level feeders
    python examples/messaging/train_devices.py --kafka mock

The last command plays over a small Kafka broker on loopback, with the same curve as the first.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from device_signals import Level, make_device_signals  # type: ignore[import-not-found]
from rich.console import Console
from signals import BEST_RETURN, Cut  # type: ignore[import-not-found]

from parllel import BatchSpec, Seeds
from parllel.cages import MultiAgentTrajInfo, VectorEnvFactory
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.testing import MockKafkaBroker
from parllel.torch import MultiAgentPPO, TorchHandler, agents_for
from parllel.transforms import EstimateMultiAgentAdvantage, NormalizeMultiAgentAdvantage
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

    level: Level = "devices"  # whose policies are trained
    sharing: Literal["independent", "shared"] = "shared"  # a policy for each agent, or one for all
    cut: Cut = "none"  # messages of this direction carry nothing
    kafka: str = ""  # HOST:PORT of a broker, or "mock"; by default, a broker in memory
    seed: int = 0  # source of all random numbers
    parallel: bool = False  # spread environments over the cores
    T: int = 16  # steps of each environment in a batch
    B: int = 64  # parallel environments
    n_steps: int = 32_768  # environment steps to train for
    log_interval_steps: int = 1_024  # environment steps between rows of the log
    n_eval_episodes: int = 64  # episodes of an evaluation
    target_return: float = 0.95 * BEST_RETURN  # mean evaluation return at which the run ends
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=3e-3, epochs=8, minibatches=4, entropy_loss_coeff=0.03
        )
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    settings: dict[str, Any] = {}
    if config.kafka:
        mock = config.kafka == "mock"
        address = stack.enter_context(MockKafkaBroker()).address if mock else config.kafka
        settings = {"kafka_mode": "kafka", "broker_kwargs": {"bootstrap": address}}
    make_env = VectorEnvFactory(
        partial(make_device_signals, level=config.level, cut=config.cut, **settings)
    )
    parts: dict[str, Any] = {"seeds": seeds, "traj_info": MultiAgentTrajInfo, "stack": stack}
    cages = build_cages(make_env, config.B, parallel=config.parallel, **parts)
    agent = agents_for(cages[0].spaces, seeds=seeds, sharing=config.sharing, hidden_sizes=(64, 64))
    # The correct settings depend only on the last observation: no reward depends on an earlier action.
    transforms = [EstimateMultiAgentAdvantage(0.0, 0.0), NormalizeMultiAgentAdvantage()]
    sampler = build_sampler(batch_spec, cages, TorchHandler(agent), [], transforms)
    n_eval = config.n_eval_episodes
    eval_cages = build_cages(make_env, n_eval, name="evaluation", **parts)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        MultiAgentPPO(agent, **config.ppo, seed=seeds.integer("algorithm")),
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
    result, _ = main(
        build,
        Config,
        base="runs/devices",
        name=lambda c: f"{c.level}-{c.sharing}-{c.cut}-seed{c.seed}",
    )
    raise SystemExit(result.exit_status or int(not result.solved))
