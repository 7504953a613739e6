"""The environments of one native vector environment: rows that are stepped and copied as wholes.

    step_row     one call steps all            -> one copy per field and row
                 an end: the last observation is kept; the next episode begins in the same row, or the
                 environment waits: the rows hold zeros then

No step that an environment ignores becomes part of a batch: see `NativeEnv` for the autoreset modes, and
`VectorStepper` for waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.argument_checks import check_row
from parllel.cages.native.native_trees import stacked
from parllel.cages.native.vector_stepper import StackedStep, VectorStepper
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import FinalObservation
from parllel.errors import WrongStateError
from parllel.types import Tree


class VectorEnvironments(RowEnvironments):
    """One native vector environment in this process, row by row."""

    stepper: VectorStepper
    _stacked = True

    def reset_rows(self, t: int, *, all_envs: bool) -> None:
        """Write reset observations into row `t`: of all, or of those that need a reset."""
        rows = self._bound()
        # One row more than the batch has: the one that follows it is where the next batch begins.
        check_row(t, rows.T + 1, self.name)
        which, observation = self.stepper.reset(all_envs=all_envs)
        if len(which) == len(self._indices):
            rows.write_observations(t, observation)
        elif len(which):
            rows.write_some(t, which, observation)
        self._started = True

    def step_row(self, t: int) -> None:
        """Step all with the actions of row `t`; ended ones that wait for a reset get zeros."""
        rows = self._rows
        # One condition for all that can be wrong, as this runs in every row; what it was is seen afterwards.
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
            # What others did is not known: the row has no rewards of theirs.
            failed = stepper.native.index_in(error)
            rows.write_part(t, [None] * len(self._indices), [], failed)
            raise
        # What the environments of those that wait return is not part of the row.
        step = whole.only(~self.needs_reset) if stepper.n_waiting else whole
        which = step.ended.nonzero()[0]
        if len(which):
            # First, so that an environment with threads resets while the row is written.
            stepper.start_resets(which)
        rows.write_observations(t + 1, step.observation)
        rows.write_stack(t, step.reward, step.terminated, step.truncated, step.ended)
        if stepper.n_waiting:
            for i in np.flatnonzero(self.needs_reset).tolist():
                rows.clear_observation(t + 1, i)
        if self._trajs.per_step:
            stepper.record(step, actions, ~self.needs_reset)
        self._trajs.add_stack(step.reward, which.tolist())
        # Also of those that wait: in some modes these are to be reset, too.
        if len(which) or (stepper.n_waiting and whole.ended.any()):
            self._end_episodes(t, rows, step, which, whole.ended)
        # Last, as an info that does not fit must not hide the end of an episode.
        if rows.env_info is not None:
            self._write_infos(t, rows, step)

    def _end_episodes(
        self,
        t: int,
        rows: Rows,
        step: StackedStep,
        which: NDArray[np.intp],
        ended: NDArray[np.bool_],
    ) -> None:
        stepper = self.stepper
        # Before the resets, in which the environment may overwrite them.
        final = stepper.finals(step, which)
        columns, truncated = (which + rows.lo).tolist(), step.truncated[which].tolist()
        self._final += [
            FinalObservation(t, *one) for one in zip(columns, final, truncated, strict=True)
        ]
        fresh = stepper.end_episodes(which, step, ended)
        if fresh is not None:
            rows.write_some(t + 1, which, fresh)
        elif stepper.same_step and not stepper.reset_automatically:
            # The row shows where an episode has ended, as that of any environment that waits.
            for i, observation in zip(which.tolist(), final, strict=True):
                rows.write_observation(t + 1, i, observation)

    def _write_infos(self, t: int, rows: Rows, step: StackedStep) -> None:
        assert rows.env_info is not None
        going = np.ones(len(self._indices), bool)
        # Those that wait leave the infos of the row as they are.
        if self.stepper.n_waiting:
            going = ~self.needs_reset | step.ended
        elif rows.env_info.write_stack(t, step.info, len(going)):
            # The info of a last step may be elsewhere, and its lack of keys is a reason to warn.
            going = step.ended
        for i in np.flatnonzero(going).tolist():
            rows.env_info.write(t, i, step.info_of(i), ended=bool(step.ended[i]))

    def _step_randomly(self, counts: Sequence[int], t: int, rows: Rows) -> None:
        if not self._started:
            raise WrongStateError(f"{self.name}: stepped before a reset")
        if max(counts):
            rows.write_some(t, *self.stepper.random_steps(counts))
