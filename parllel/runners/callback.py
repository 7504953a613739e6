"""Callbacks of a run, and the runner interface available to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

from parllel.algos.algorithm import Algorithm
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.logging.logger import Logger
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult
from parllel.samplers.sampler import Sampler
from parllel.types import State


class RunnerInterface(Protocol):
    """The interface of a runner that callbacks may use."""

    @property
    def sampler(self) -> Sampler:
        """The training sampler."""

    @property
    def eval_sampler(self) -> Sampler | None:
        """The evaluation sampler, or None."""

    @property
    def algorithm(self) -> Algorithm:
        """The learning algorithm."""

    @property
    def n_steps(self) -> int:
        """Total number of environment steps of the run."""

    @property
    def result(self) -> RunResult:
        """The result of the run so far."""

    @property
    def logger(self) -> Logger:
        """The logger of rows and messages."""

    @property
    def folder(self) -> RunFolder | None:
        """The folder of the run, or None if nothing is saved."""

    def stop(self, reason: str) -> None:
        """Stop the run after the current batch, with a checkpoint."""

    def save(self) -> None:
        """Write a checkpoint after the current batch."""


_HOOKS_BEGIN = ("before_", "after_")


class Callback:
    """Hooks of a training run. Override any of these methods; the defaults do nothing.

    They are called in the training process, in the order of the list of callbacks. An exception ends the
    run. `elapsed_steps` is the number of environment steps sampled so far.

    Defining a subclass with an unknown method `before_*` or `after_*` raises TypeError, because the method
    would never be called.

    Example:
        >>> class Announce(Callback):
        ...     def after_evaluation(self, elapsed_steps, trajs):
        ...         print(elapsed_steps, max(traj.return_ for traj in trajs))
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in dir(cls):
            known = not name.startswith(_HOOKS_BEGIN) or hasattr(Callback, name)
            if not known and callable(getattr(cls, name)):
                raise TypeError(_unknown_hook(cls.__name__, name))

    def start(self, runner: RunnerInterface) -> None:
        """Called first, with the runner. Store the runner to log values or to `stop` the run later."""

    def before_sampling(self, elapsed_steps: int) -> None:
        """Called before a batch is sampled."""

    def after_sampling(
        self, elapsed_steps: int, samples: Samples, trajs: Sequence[TrajInfo]
    ) -> None:
        """Called after a batch is sampled. The sampler overwrites this batch with the next one.

        elapsed_steps: number of steps so far, including this batch.
        trajs: the episodes that ended in this batch.
        """

    def before_optimization(self, elapsed_steps: int) -> None:
        """Called before the algorithm learns from the batch."""

    def after_optimization(self, elapsed_steps: int, diagnostics: Mapping[str, Any]) -> None:
        """Called after the update, with its diagnostics."""

    def before_evaluation(self, elapsed_steps: int) -> None:
        """Called before an evaluation."""

    def after_evaluation(self, elapsed_steps: int, trajs: Sequence[TrajInfo]) -> None:
        """Called after an evaluation, with its episodes."""

    def before_row(self, elapsed_steps: int) -> None:
        """Called before a row is logged. Add values to the row with `runner.logger.log_value(...)`."""

    def state(self) -> State:
        """Return the state for a checkpoint, made of arrays and JSON values."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""

    def close(self) -> None:
        """Close files and end processes. Called when the run has ended, also after an error."""


def _unknown_hook(class_name: str, name: str) -> str:
    hooks = [one for one in vars(Callback) if one.startswith(_HOOKS_BEGIN)]
    near = get_close_matches(name, hooks, n=1, cutoff=0.7)
    guess = f"; did you mean {near[0]}?" if near else ""
    return (
        f"{class_name}.{name}: expected one of the hooks {', '.join(hooks)}, as runners call no other method "
        f"that begins with before_ or after_{guess}"
    )
