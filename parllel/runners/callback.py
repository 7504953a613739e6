"""Code of the user that a run calls, and what it knows of the runner that calls it."""

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


_HOOKS_BEGIN = ("before_", "after_")


class Callback:
    """Methods that a runner calls; each does nothing unless a subclass has its own.

    They are called in the process that trains, one callback after the other in the order of the list. An
    exception that one raises ends the run. `elapsed_steps` are the environment steps sampled so far.

    A subclass with a method whose name begins as those of hooks do, and is none of them, is refused with a
    TypeError: it would never be called.

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


def _unknown_hook(class_name: str, name: str) -> str:
    hooks = [one for one in vars(Callback) if one.startswith(_HOOKS_BEGIN)]
    near = get_close_matches(name, hooks, n=1, cutoff=0.7)
    guess = f"; did you mean {near[0]}?" if near else ""
    return (
        f"{class_name}.{name}: expected one of the hooks {', '.join(hooks)}, as runners call no other method "
        f"that begins with before_ or after_{guess}"
    )
