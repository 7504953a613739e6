"""Code of the user that a run calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.runners.runner_interface import RunnerInterface
from parllel.types import State


class Callback:
    """Methods that a runner calls; each does nothing unless a subclass has its own.

    They are called in the process that trains, one callback after the other in the order of the list. An
    exception that one raises ends the run. `elapsed_steps` are the environment steps sampled so far.

    Example:
        >>> class Announce(Callback):
        ...     def after_evaluation(self, elapsed_steps, trajs):
        ...         print(elapsed_steps, max(traj.return_ for traj in trajs))
    """

    def start(self, runner: RunnerInterface) -> None:
        """Get the runner, before any other call; keep it to log values, or to `stop` the run."""

    def before_sampling(self, elapsed_steps: int) -> None:
        """Do something before a batch."""

    def after_sampling(
        self, elapsed_steps: int, samples: Samples, trajs: Sequence[TrajInfo]
    ) -> None:
        """Look at a batch, which is the sampler's and stays as it is until the next.

        elapsed_steps: with those of this batch.
        trajs: of the episodes that ended in it.
        """

    def before_optimization(self, elapsed_steps: int) -> None:
        """Do something before the algorithm learns from the batch."""

    def after_optimization(self, elapsed_steps: int, diagnostics: Mapping[str, Any]) -> None:
        """Look at the diagnostics of the update."""

    def before_evaluation(self, elapsed_steps: int) -> None:
        """Do something before an evaluation."""

    def after_evaluation(self, elapsed_steps: int, trajs: Sequence[TrajInfo]) -> None:
        """Look at the episodes of an evaluation."""

    def before_row(self, elapsed_steps: int) -> None:
        """Add values to the row that is about to be written: `runner.logger.log_value(...)`."""

    def state(self) -> State:
        """Return what a checkpoint needs to continue: arrays and JSON values."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""

    def close(self) -> None:
        """Close files and end processes; called when the run has ended, after an error too."""
