"""Rows of environments that are stepped one by one.

step_row     steps[i](action) for each     -> observation written immediately, reward and flags as a row
             an end: reset in the same step, or not stepped until `reset_rows`
prepare      while a worker is idle        -> ended environments are reset, into private memory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from parllel.cages.argument_checks import check_row
from parllel.cages.stepping.checks import no_number, none_observed
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.stepping.trajectories import End, is_number
from parllel.errors import add_note
from parllel.types import Tree, overrides


class Environments(RowEnvironments):
    """Steps a list of environments and writes their results to a row of the batch."""

    stepper: EnvStepper

    def __init__(self, stepper: EnvStepper) -> None:
        super().__init__(stepper)
        # The stepper's own list, in which it may replace a checked step by a plain one during a row.
        self._steps = stepper.steps
        self._add_rewards = self._trajs.bound_add_row()
        # Fast paths of `step_row`, by `truncated_only`, and the batch they were made for, by the list of its
        # cells.
        self._quick: dict[bool, Callable[[int], None]] = {}
        self._quick_cells: list[list[NDArray[Any]]] | None = None

    def reset_rows(
        self, t: int, *, all_envs: bool = True, which: NDArray[np.bool_] | None = None
    ) -> None:
        """Reset all environments, those of `which`, or those that need it, into row `t`."""
        rows = self._bound()
        # Row T is allowed too: it follows the batch, and the next batch begins with it.
        check_row(t, rows.T + 1, self.name)
        if which is None:
            which = self.needs_reset | all_envs
        try:
            for i in np.flatnonzero(which).tolist():
                rows.write_observation(t, i, self._reset_one(i))
        finally:
            self.stepper.options = None
        # Only after all of them: if one reset failed, no row may be stepped.
        self._started = True

    def _reset_one(self, i: int) -> Tree:
        return self.stepper.reset_one(i)[0]

    def step_row(self, t: int) -> None:
        """Step all environments with the actions of row `t`; those that wait for a reset get zeros."""
        rows = self._rows
        # One condition for all errors, as this runs in every row; `_refuse_row` finds out which it is.
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
        # The fast path has no infos, nested observations, waiting environments or per-step TrajInfos.
        elif rows.cells is None or self.stepper.n_waiting or self._trajs.per_step:
            self._run_row(t, rows, rows.read_actions(t), by_agent=True)
        else:
            self._quick_step(rows, truncated_only=False)(t)

    def bound_step(self, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return `step_row`, or the fast path for the current batch, with all look-ups made."""
        rows = self._rows
        # What else could be wrong, `step_row` refuses in the first row.
        if (
            rows is None
            or rows.read_actions is None
            or rows.cells is None
            or not self._started
            or self._trajs.per_step
            or overrides(self, Environments, "step_row")
        ):
            return self.step_row
        return self._quick_step(rows, truncated_only=truncated_only)

    def _run_drawn(self, t: int, rows: Rows, actions: list[Any]) -> None:
        self._run_row(t, rows, actions)

    def _quick_step(self, rows: Rows, *, truncated_only: bool) -> Callable[[int], None]:
        if self._quick_cells is not rows.cells:
            self._quick, self._quick_cells = {}, rows.cells
        step = self._quick.get(truncated_only)
        if step is None:
            step = self._quick[truncated_only] = self._bind_step(rows, truncated_only)
        return step

    def close(self) -> None:
        """Close all environments even if some fail, then raise the first error."""
        self._quick, self._quick_cells = {}, None  # they hold views of the batch
        super().close()

    def _bind_step(self, rows: Rows, truncated_only: bool) -> Callable[[int], None]:
        """Return the fast path for a single observation array, and rows in which every environment steps."""
        # A closure: its names cost less than attributes, in a function that runs in every row.
        stepper, steps, indices = self.stepper, self._steps, self._indices
        read_actions, all_cells, T = rows.read_actions, rows.cells, rows.T
        add_row, write_results = self._add_rewards, rows.write_results
        # Nobody asks for the last observation of a terminated episode then, which takes a copy.
        restarts = truncated_only and stepper.reset_automatically
        restart = stepper.restart
        assert read_actions is not None
        assert all_cells is not None

        def step_row(t: int) -> None:
            if stepper.n_waiting or not 0 <= t < T:
                self.step_row(t)
                return
            # Each environment costs one call, one append and one copy, without indexing. So `rewards` has no
            # entries for steps that were not made; they are filled in for `_abandon_row`.
            rewards: list[Any] = []
            ended: list[End] = []
            add_reward = rewards.append
            actions = read_actions(t)
            i = -1
            try:
                # Without `strict`, as a keyword costs 0.1 us.
                for i, step, action, cell in zip(indices, steps, actions, all_cells[t + 1]):  # noqa: B905
                    observation, reward, terminated, truncated, _ = step(action)
                    # Before anything that can raise: the step was made, so the statistics count it.
                    add_reward(reward)
                    if observation is None:  # numpy would write NaN
                        raise none_observed(stepper.name_of(i))
                    if terminated or truncated:
                        ended.append((i, bool(terminated), bool(truncated)))
                        if restarts and not truncated:
                            observation = restart(i)
                        else:
                            final = stepper.end_episode(i, observation)
                            self._final.append(
                                FinalObservation(t, rows.lo + i, final, bool(truncated))
                            )
                            observation = stepper.follow_episode(i, final)
                    # Copied immediately, as the environment may overwrite its array in the next step. After
                    # an automatic reset this is the first observation of the next episode; only `_final` has
                    # the true last one.
                    cell[...] = observation
            except Exception as error:
                add_note(error, f"in {stepper.name_of(i)}, during step")
                left_out: list[Any] = [None] * (len(indices) - len(rewards))
                self._abandon_row(t, rows, rewards + left_out, ended, i)
                raise
            # Last, and as a whole: one call for the row costs as much as one call per reward would.
            try:
                row = add_row(rewards, ended)
            except Exception as error:
                self._refuse_rewards(t, rows, rewards, ended, error)
            write_results(t, row, ended)

        return step_row

    def _run_row(self, t: int, rows: Rows, actions: list[Any], *, by_agent: bool = False) -> None:
        # None marks a step that was not made.
        rewards: list[Any] = [None] * len(self._steps)
        ended: list[End] = []
        if by_agent and rows.agent_info is not None and self._trajs.sees_agent_info:
            self._show_agent_infos(t, rows)
        self._step_all(t, rows, actions, rewards, ended)
        rows.write_results(t, self._add_row(t, rows, rewards, ended), ended)

    def _step_all(
        self, t: int, rows: Rows, actions: list[Any], rewards: list[Any], ended: list[End]
    ) -> None:
        """Step all that do not wait, and write results to the lists and to rows t and t + 1."""
        indices: Sequence[int] = self._indices
        steps = self._steps
        if self.stepper.n_waiting:
            indices, steps, actions = self._leave_out_waiting(t, rows, actions, rewards)
        # Looked up once: this loop is what a step costs.
        cells: Any = None if rows.single is None else rows.single[t + 1]
        nested, infos = cells is None, rows.env_info
        record = self._trajs.step if self._trajs.per_step else None
        i = -1
        try:
            for i, step, action in zip(indices, steps, actions, strict=False):
                observation, reward, terminated, truncated, info = step(action)
                rewards[i] = reward
                if observation is None:
                    raise none_observed(self.stepper.name_of(i))
                if record is not None:
                    try:  # costs nothing if it is a number
                        number = float(reward)
                    except (TypeError, ValueError):
                        raise no_number(reward, self.stepper.name_of(i)) from None
                    record(i, observation, action, number, terminated, truncated, info)
                if terminated or truncated:
                    ended.append((i, bool(terminated), bool(truncated)))
                    final = self.stepper.end_episode(i, observation)
                    self._final.append(FinalObservation(t, rows.lo + i, final, bool(truncated)))
                    observation = self.stepper.follow_episode(i, final)
                if nested:
                    rows.write_observation(t + 1, i, observation)
                else:
                    cells[i] = observation
                # Last: an info that does not fit raises, and must not hide the end of an episode.
                if infos is not None:
                    infos.write(t, i, info, ended=terminated or truncated)
        except Exception as error:
            # A note, not a new exception: the error keeps its type, which the user's code may expect.
            add_note(error, f"in {self.stepper.name_of(i)}, during step")
            self._abandon_row(t, rows, rewards, ended, i)
            raise

    def _abandon_row(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End], failed: int | None
    ) -> None:
        """Keep the valid part of a failed row: the results of the other environments."""
        self._trajs.abandon_row(rewards, ended)
        rows.write_part(t, rewards, ended, failed)

    def _leave_out_waiting(
        self, t: int, rows: Rows, actions: list[Any], rewards: list[Any]
    ) -> tuple[list[int], list[Callable[[Any], Any]], list[Any]]:
        """Write zeros for waiting environments; return indices, steps and actions of the others."""
        for i in np.flatnonzero(self.needs_reset).tolist():
            rewards[i] = 0.0
            # The row still holds observations of an earlier batch, which the agent would act on.
            rows.clear_observation(t + 1, i)
        awake: list[int] = np.flatnonzero(~self.needs_reset).tolist()
        return awake, [self._steps[i] for i in awake], [actions[i] for i in awake]

    def _add_row(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End]
    ) -> NDArray[np.float64]:
        try:
            return self._add_rewards(rewards, ended)
        except Exception as error:
            self._refuse_rewards(t, rows, rewards, ended, error)

    def _refuse_rewards(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End], error: Exception
    ) -> NoReturn:
        """Keep the valid part of a row whose rewards could not be added, and raise."""
        # Checked only after a failure: checking every reward would slow down all rows.
        wrong = [i for i, reward in enumerate(rewards) if not is_number(reward)]
        failed = wrong[0] if wrong else None
        self._abandon_row(t, rows, rewards, ended, failed)
        if failed is None:
            raise error
        raise no_number(rewards[failed], self.stepper.name_of(failed)) from error

    def _step_randomly(self, counts: Sequence[int], t: int, rows: Rows) -> None:
        stepper = self.stepper
        # Random steps continue past the ends of episodes, even in cages without automatic resets.
        automatic, stepper.reset_automatically = stepper.reset_automatically, True
        try:
            for i, count in enumerate(counts):
                # Each samples from its own action space, so that the division among processes changes
                # nothing.
                for _ in range(count):
                    rows.write_observation(t, i, stepper.random_one(i)[1].observation)
        finally:
            stepper.reset_automatically = automatic
