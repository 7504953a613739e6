"""Rows of one native vector environment, stepped and copied as a whole.

    step_row     one call steps all            -> one copy per field and row
                 an end: the last observation is kept; the next episode begins in the same row, or the
                 environment waits and its cells hold zeros

Steps that an environment ignores are not recorded: see `NativeEnv` for the autoreset modes, and
`VectorStepper` for waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.argument_checks import check_row
from parllel.cages.native.native_trees import as_returned, stacked
from parllel.cages.native.vector_stepper import StackedStep, VectorStepper
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import FinalObservation, RowInfos
from parllel.errors import WrongStateError
from parllel.types import Tree


class VectorEnvironments(RowEnvironments):
    """One native vector environment in this process, row by row."""

    stepper: VectorStepper
    _stacked = True

    def __init__(self, stepper: VectorStepper, *, infos: bool = False) -> None:
        super().__init__(stepper)
        self._keeps_infos = infos
        self._raw = infos
        self._forget()

    def _forget(self) -> None:
        self._infos: list[dict[str, Any]] = [{} for _ in self._indices]
        self._finals: dict[int, tuple[Tree, dict[str, Any]]] = {}

    def take_infos(self) -> RowInfos | None:
        """Return the infos of the last row or reset; None if they are not kept."""
        taken = RowInfos(self._infos, self._finals)
        self._forget()
        return taken if self._keeps_infos else None

    def reset_rows(
        self, t: int, *, all_envs: bool = True, which: NDArray[np.bool_] | None = None
    ) -> None:
        """Reset all environments, those of `which`, or those that need it, into row `t`."""
        self._forget()
        self._reset_into(t, self.needs_reset | all_envs if which is None else which)

    def _reset_waiting(self, t: int, waiting: NDArray[np.bool_]) -> None:
        # Keeps the infos of the steps in the same row.
        self._reset_into(t, waiting)

    def _reset_into(self, t: int, mask: NDArray[np.bool_]) -> None:
        rows = self._bound()
        # Row T is allowed too: it follows the batch, and the next batch begins with it.
        check_row(t, rows.T + 1, self.name)
        try:
            numbers, observation = self.stepper.reset(mask)
        finally:
            self.stepper.options = None
        if len(numbers) == len(self._indices):
            rows.write_observations(t, observation)
        elif len(numbers):
            rows.write_some(t, numbers, observation)
        if self._keeps_infos:
            for i in numbers.tolist():
                self._infos[i] = self.stepper.reset_info_of(i)
        # Only after the writes: if a reset failed, no row may be stepped.
        self._started = True

    def lose_row(self, t: int) -> None:
        """Write a row without steps."""
        # Environments that wait are stepped too in most vector environments, which a reset must precede.
        if not self.stepper.reset_automatically:
            self.stepper.reset_to_wait()
        super().lose_row(t)

    def step_row(self, t: int) -> None:
        """Step all environments with the actions of row `t`; those that wait for a reset get zeros."""
        rows = self._rows
        # One condition for all errors, as this runs in every row; `_refuse_row` finds out which it is.
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
            return
        if rows.agent_info is not None and self._trajs.sees_agent_info:
            self._show_agent_infos(t, rows)
        self._run_row(t, rows, rows.read_actions(t))

    def _run_drawn(self, t: int, rows: Rows, actions: list[Any]) -> None:
        self._run_row(t, rows, stacked(self.spaces.action, actions))

    def _run_row(self, t: int, rows: Rows, actions: Tree) -> None:
        stepper = self.stepper
        try:
            whole = stepper.step(actions)
        except Exception as error:
            # Whether the others were stepped is unknown: their rewards of this row become NaN.
            failed = stepper.native.index_in(error)
            rows.write_part(t, [None] * len(self._indices), [], failed)
            raise
        # Results of waiting environments are not recorded.
        step = whole.only(~self.needs_reset) if stepper.n_waiting else whole
        which = step.ended.nonzero()[0]
        if len(which):
            # First, so that an environment with threads resets while this process writes the row.
            # `_end_episodes` reads the answer; if anything below raises first, the
            # next step discards it.
            stepper.start_resets(which)
        rows.write_observations(t + 1, step.observation)
        rows.write_stack(t, step.reward, step.terminated, step.truncated, step.ended)
        if stepper.n_waiting:
            for i in np.flatnonzero(self.needs_reset).tolist():
                rows.clear_observation(t + 1, i)
        if self._keeps_infos:
            self._keep(step, which)
        else:
            if self._trajs.per_step:
                stepper.record(step, actions, ~self.needs_reset)
            self._trajs.add_stack(step.reward, which.tolist())
        # Waiting environments count too: in some modes they must be reset as well.
        if len(which) or (stepper.n_waiting and whole.ended.any()):
            self._end_episodes(t, rows, step, which, whole.ended)
        # Last: an info that does not fit raises, and must not hide the end of an episode.
        if rows.env_info is not None:
            self._write_infos(t, rows, step)

    def _keep(self, step: StackedStep, which: NDArray[np.intp]) -> None:
        self._forget()
        if step.info:
            for i in np.flatnonzero(~self.needs_reset).tolist():
                self._infos[i] = step.info_of(i)

    def _end_episodes(
        self,
        t: int,
        rows: Rows,
        step: StackedStep,
        which: NDArray[np.intp],
        ended: NDArray[np.bool_],
    ) -> None:
        stepper = self.stepper
        # Before the resets, which may overwrite them.
        final = stepper.finals(step, which)
        columns, truncated = (which + rows.lo).tolist(), step.truncated[which].tolist()
        if not self._keeps_infos:
            self._final += [
                FinalObservation(t, *one) for one in zip(columns, final, truncated, strict=True)
            ]
        fresh = stepper.end_episodes(which, step, ended)
        if self._keeps_infos and stepper.reset_automatically:
            for i, one in zip(which.tolist(), final, strict=True):
                self._finals[i] = as_returned(self.spaces.observation, one), self._infos[i]
                self._infos[i] = stepper.reset_info(step, i)
        if fresh is not None:
            rows.write_some(t + 1, which, fresh)
        elif stepper.same_step and not stepper.reset_automatically:
            # Like any environment that waits, it shows the last observation of its episode.
            for i, observation in zip(which.tolist(), final, strict=True):
                rows.write_observation(t + 1, i, observation)

    def _write_infos(self, t: int, rows: Rows, step: StackedStep) -> None:
        assert rows.env_info is not None
        going = np.ones(len(self._indices), bool)
        # The row's infos of waiting environments are left as they are.
        if self.stepper.n_waiting:
            going = ~self.needs_reset | step.ended
        elif rows.env_info.write_stack(t, step.info, len(going)):
            # A last step's info may be in "final_info", and is checked for missing keys.
            going = step.ended
        for i in np.flatnonzero(going).tolist():
            rows.env_info.write(t, i, step.info_of(i), ended=bool(step.ended[i]))

    def _step_randomly(self, counts: Sequence[int], t: int, rows: Rows) -> None:
        if not self._started:
            raise WrongStateError(f"{self.name}: stepped before a reset")
        if max(counts):
            rows.write_some(t, *self.stepper.random_steps(counts))
