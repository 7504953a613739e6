"""Schedule of the files that a run writes besides the log: checkpoints, seeds, allocators, plots."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from parllel.buffers.description import describe_arrays, summarize_arrays
from parllel.logging.logger import Logger
from parllel.pictures.learning_curve import plot_learning_curve
from parllel.runners.row_log import TimeAccount
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult
from parllel.runs.state_file import check_state
from parllel.samplers.sampler import Sampler
from parllel.seeding import Seeds
from parllel.types import State


class Checkpointed(Protocol):
    """The interface of a runner that checkpointing needs."""

    @property
    def result(self) -> RunResult:
        """The result of the run so far."""

    @property
    def account(self) -> TimeAccount:
        """The TimeAccount to which the time spent on checkpoints is added."""

    @property
    def samplers(self) -> Sequence[Sampler]:
        """The training and evaluation samplers."""

    def state(self) -> State:
        """Return the state to save."""

    def state_to_show(self) -> State:
        """Return the state without what only training needs and takes much memory."""


class Checkpointing:
    """Writes checkpoints, the description of the buffer and the learning curve.

    The first checkpoint is written before the first batch, so that a full disk, or a state that
    cannot be saved, ends the run early. The state is checked again after the first batch, because
    an optimiser has no state before its first update. Later errors become warnings.

    Args:
        folder: folder of the run; with None, nothing is written.
        logger: receives the warnings.
        interval_s: minimum seconds between checkpoints after rows of the log.
        keep: number of checkpoints to keep.
    """

    def __init__(
        self, folder: RunFolder | None, logger: Logger, interval_s: float, *, keep: int
    ) -> None:
        if not interval_s >= 0:
            raise ValueError(f"checkpoint_interval_s: expected 0 or more, got {interval_s}")
        if keep < 1:
            raise ValueError(f"keep_checkpoints: expected at least 1, got {keep}")
        if folder is not None:
            folder.checkpoints.keep = keep
        self._folder = folder
        self._logger = logger
        self._interval_s = interval_s
        # Monotonic: the time of day may be changed during a run.
        self._written_at = time.monotonic()
        self._took_s = 0.0  # of the last checkpoint
        self._step: int | None = None  # of the last checkpoint
        self._said = False  # whether environments without a state have been named
        self._described = False
        self._checked = False

    def write_start(self, seeds: Seeds | None, samples: Any) -> None:
        """Write the seeds, and the description of the buffer if it is already known."""
        if self._folder is not None and seeds is not None:
            self._folder.write_seeds(seeds)
        if samples is not None:
            self._describe(samples)

    def see_batch(self, samples: Any) -> None:
        """Write the description of a buffer that was not known before the first batch."""
        if self._described:
            return
        try:
            self._describe(samples)
        except OSError as error:
            self._logger.warn(f"no allocators were written: {error}")

    def _describe(self, samples: Any) -> None:
        self._described = True
        if self._folder is not None:
            found = describe_arrays(samples)
            self._folder.write_allocators(found)
            self._logger.notice(summarize_arrays(found))

    def write_first(self, run: Checkpointed) -> None:
        """Write the first checkpoint; for a resumed run, only name environments that begin new episodes."""
        # A resumed run has a checkpoint already, and rewriting it could only lose it.
        if self._step is None:
            with _saying_what_it_means():
                self.write(run)
        elif not self._said:
            self._said = self._name_unsaved(run, "their episodes begin anew")

    def check_once(self, run: Checkpointed) -> None:
        """Check once that the state can be saved, so that an error is found before the run must be resumed.

        Raises:
            TypeError: if it cannot be saved. The message names the part and the place in its state.
        """
        if self._checked or self._folder is None:
            return
        self._checked = True
        # Checks the state without writing it, as it may be large.
        with run.account.stage("checkpoints"), _saying_what_it_means():
            check_state(run.state())

    def write_if_due(self, run: Checkpointed) -> None:
        """Write a checkpoint if the last one is old enough."""
        # One with a large replay takes a while; at most a twentieth of the run is spent on them.
        least_s = 20 * self._took_s if self._took_s > 1.0 else 0.0
        if time.monotonic() - self._written_at >= max(self._interval_s, least_s):
            self._try(run)

    def write_unless_written(self, run: Checkpointed) -> None:
        """Write a checkpoint if none was written since the last batch."""
        if self._step != run.result.elapsed_steps:
            self._try(run)

    def write_if_best(self, run: Checkpointed) -> None:
        """Keep a separate checkpoint if the last evaluation is the best so far."""
        best, step = run.result.best, run.result.elapsed_steps
        # The best point of the curve is that of the last evaluation only if it lies at this step.
        if self._folder is None or best is None or best[0] != step:
            return
        try:
            with run.account.stage("checkpoints"):
                self._folder.best.save(step, run.state_to_show())
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self._logger.warn(f"the checkpoint of the best evaluation was not written: {why}")

    def _try(self, run: Checkpointed) -> None:
        try:
            self.write(run)
        except Exception as error:
            # Do not try again with every row: the next attempt is due after a whole interval.
            self._written_at = time.monotonic()
            newest = (
                "there is none" if self._step is None else f"the newest is of step {self._step:,}"
            )
            why = f"{type(error).__name__}: {error}"
            self._logger.warn(f"no checkpoint was written; {newest}: {why}")

    def write(self, run: Checkpointed) -> None:
        """Write a checkpoint, even if there is one of this step."""
        if self._folder is None:
            return
        begin = time.monotonic()
        with run.account.stage("checkpoints"):
            step = run.result.elapsed_steps
            # Rows first: after a power cut a checkpoint must not be there without the rows before it.
            self._logger.sync()
            self._folder.checkpoints.save(step, run.state())
        self._step, self._written_at = step, time.monotonic()
        self._took_s = self._written_at - begin
        if not self._said:
            self._said = self._name_unsaved(
                run, "their episodes begin anew when this run is resumed"
            )

    def loaded(self, run: Checkpointed) -> None:
        """Record that the run continues from a checkpoint."""
        self._step, self._written_at = run.result.elapsed_steps, time.monotonic()
        self._said = False

    def _name_unsaved(self, run: Checkpointed, consequence: str) -> bool:
        """Warn about environments whose state cannot be saved. Return whether there are any."""
        unsaved: Counter[str] = Counter()
        for sampler in run.samplers:
            unsaved.update(sampler.unsaved_environments)
        for name, count in unsaved.items():
            self._logger.warn(
                f"{count} environments do not offer their state ({name}): {consequence}; see "
                "parllel.envs.states.env_state"
            )
        return bool(unsaved)

    def draw(self, result: RunResult) -> None:
        """Draw the learning curve."""
        if self._folder is None:
            return
        try:
            plot_learning_curve(self._folder.learning_curve, result.curves, self._folder.path.name)
        except Exception as error:  # matplotlib raises what it likes
            self._logger.warn(f"no learning curve was drawn: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _saying_what_it_means() -> Iterator[None]:
    try:
        yield
    except TypeError as error:
        raise TypeError(
            f"this run could not be resumed: {error}; return only such values from the part's "
            "state()"
        ) from error
