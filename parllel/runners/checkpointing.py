"""When a run writes its checkpoints, and what else it leaves in its folder."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from parllel.buffers import describe_arrays, summarize_arrays
from parllel.logging import Logger
from parllel.runners.learning_curve import plot_learning_curve
from parllel.runners.run_folder import RunFolder
from parllel.seeding import Seeds

if TYPE_CHECKING:
    from parllel.runners.on_policy_runner import OnPolicyRunner, RunResult


class Checkpointing:
    """Write what a run leaves, so that nothing but its beginning can fail for it.

    The first checkpoint is written before the first batch: a folder that is full, or a state that cannot be
    saved, shows then. Whatever goes wrong later is a warning.

    Args:
        folder: of the run; None writes nothing.
        logger: gets the warnings.
        interval_s: least number of seconds between two checkpoints behind rows.
        keep: how many of them stay.
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
        self._written_at = time.monotonic()
        self._step: int | None = None  # of the last checkpoint
        self._said = False
        self._described = False

    def write_start(self, seeds: Seeds | None, samples: Any) -> None:
        """Write the seeds, and the allocators of a buffer that is known already."""
        if self._folder is not None and seeds is not None:
            self._folder.write_seeds(seeds)
        if samples is not None:
            self._describe(samples)

    def see_batch(self, samples: Any) -> None:
        """Write the allocators of a buffer that is not known before the first batch."""
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

    def write_first(self, runner: OnPolicyRunner) -> None:
        """Write the checkpoint of the beginning; if the run goes on from one, say what that lacks."""
        if self._step is None:
            self.write(runner)
        elif not self._said:
            self._said = self._name_unsaved(runner, "their episodes begin anew")

    def write_if_due(self, runner: OnPolicyRunner) -> None:
        """Write one if the last is old enough."""
        if time.monotonic() - self._written_at >= self._interval_s:
            self._try(runner)

    def write_unless_written(self, runner: OnPolicyRunner) -> None:
        """Write one if none was written since the last batch."""
        if self._step != runner.result.elapsed_steps:
            self._try(runner)

    def _try(self, runner: OnPolicyRunner) -> None:
        try:
            self.write(runner)
        except Exception as error:
            # The next attempt is as far away as the next checkpoint.
            self._written_at = time.monotonic()
            self._logger.warn(f"no checkpoint was written: {type(error).__name__}: {error}")

    def write(self, runner: OnPolicyRunner) -> None:
        """Write one, whatever there is already."""
        if self._folder is None:
            return
        with runner.account.stage("checkpoints"):
            step = runner.result.elapsed_steps
            self._logger.sync()  # the checkpoint is not to outlast the rows in front of it
            self._folder.checkpoints.save(step, runner.state())
        self._step, self._written_at = step, time.monotonic()
        if not self._said:
            self._said = self._name_unsaved(
                runner, "their episodes begin anew when this run is resumed"
            )

    def loaded(self, runner: OnPolicyRunner) -> None:
        """Know that the run goes on from a checkpoint."""
        self._step, self._written_at = runner.result.elapsed_steps, time.monotonic()
        self._said = False

    def _name_unsaved(self, runner: OnPolicyRunner, consequence: str) -> bool:
        """Say which environments do not offer their state; return whether there are any."""
        samplers = [runner.sampler, *([runner.eval_sampler] if runner.eval_sampler else [])]
        unsaved: Counter[str] = Counter()
        for sampler in samplers:
            unsaved.update(sampler.unsaved_environments)
        for name, count in unsaved.items():
            self._logger.warn(
                f"{count} environments do not offer their state ({name}): {consequence}; see "
                "parllel.envs.env_state"
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
