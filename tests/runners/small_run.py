"""A run that is over in a moment: numbers are drawn, and an average of them is learned."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm
from parllel.cages import TrajInfo
from parllel.logging import CsvWriter, JsonlWriter, Logger, TextWriter
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.samplers import Sampler


@dataclass(frozen=True)
class Rates:
    learning_rate: float = 0.1


@dataclass(frozen=True)
class Config:
    """What a run can be told.

    Attributes:
        size: of the weights.
        signal_at: steps after which SIGTERM comes.
        fail_at: steps after which an exception comes; -1 is while the run is put together.
    """

    seed: int = 0
    n_steps: int = 60
    size: int = 3
    rates: Rates = Rates()
    signal_at: int | None = None
    fail_at: int | None = None
    target_return: float | None = None
    tags: dict[str, Any] = field(default_factory=dict)


class NumberSampler(Sampler):
    """Draw numbers; one episode ends per batch, whose return is their sum."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.generator = np.random.default_rng(seed)

    def collect_batch(self, elapsed_steps: int) -> Any:
        numbers = self.generator.normal(size=self.size)
        traj = TrajInfo()
        traj.return_, traj.length = float(numbers.sum()), 10
        return numbers, [traj]

    def count_steps(self, samples: Any) -> int:
        return 10

    def state(self, *, environments: bool = True) -> dict[str, Any]:
        return {"generator": self.generator.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.bit_generator.state = state["generator"]

    def close(self) -> None:
        pass


class Averaging(Algorithm):
    """Keep a running mean."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.mean = np.zeros(config.size)

    def optimize_agent(self, elapsed_steps: int, samples: Any) -> dict[str, Any]:
        if elapsed_steps == self.config.fail_at:
            raise FloatingPointError("the loss is not finite")
        if elapsed_steps == self.config.signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        self.mean += self.config.rates.learning_rate * (samples - self.mean)
        return {"mean": self.mean.copy()}

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        if state["mean"].shape != self.mean.shape:
            raise ValueError(f"mean: expected shape {self.mean.shape}, got {state['mean'].shape}")
        self.mean[:] = state["mean"]


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put a run together."""
    if config.fail_at == -1:
        raise OSError("there is no such environment")
    seeds = Seeds(config.seed)
    logger = Logger([kind(folder.path) for kind in (CsvWriter, JsonlWriter, TextWriter)])
    stack.callback((folder.path / "closed").write_text, "yes")
    return OnPolicyRunner(
        BatchSpec(5, 2),
        NumberSampler(config.size, seeds.integer("numbers")),
        Averaging(config),
        n_steps=config.n_steps,
        logger=stack.enter_context(logger),
        log_interval_steps=20,
        eval_sampler=NumberSampler(config.size, seeds.integer("evaluation")),
        target_return=config.target_return,
        folder=folder,
        seeds=seeds,
        console=console,
        checkpoint_interval_s=0.0,
    )


def build_from_dict(
    config: dict[str, Any], stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put a run together whose config is a dict."""
    return build(Config(seed=config["seed"], n_steps=config["n_steps"]), stack, folder, console)
