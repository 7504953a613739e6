"""What callbacks know of the runner that calls them."""

from __future__ import annotations

from typing import Protocol

from parllel.algos.algorithm import Algorithm
from parllel.logging.logger import Logger
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult
from parllel.samplers.sampler import Sampler


class RunnerInterface(Protocol):
    """What a callback may look at and ask for, whatever the runner."""

    @property
    def sampler(self) -> Sampler:
        """The sampler of training."""

    @property
    def eval_sampler(self) -> Sampler | None:
        """The sampler of evaluations; None if there are none."""

    @property
    def algorithm(self) -> Algorithm:
        """What learns."""

    @property
    def n_steps(self) -> int:
        """Environment steps of the whole run."""

    @property
    def result(self) -> RunResult:
        """What has come of the run so far."""

    @property
    def logger(self) -> Logger:
        """Where rows and messages go."""

    @property
    def folder(self) -> RunFolder | None:
        """The folder of the run; None if nothing is saved."""

    def stop(self, reason: str) -> None:
        """End the run after the current batch, with a checkpoint to go on from."""

    def save(self) -> None:
        """Write a checkpoint after the current batch."""
