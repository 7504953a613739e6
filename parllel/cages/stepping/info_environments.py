"""Environments stepped one by one whose infos are kept for the caller, who follows the episodes.

    step_row     steps[i](action) for each     -> observation, reward and flags as always
                                               -> infos[i]; at an automatic reset finals[i] as well
    take_infos   between rows                  -> the infos of the latest row, reported once

Vector environments in the form of other libraries are built on these: they report infos in every row, and
expect to find each environment as its last info left it. So resets are not prepared ahead of time, no
episodes are recorded, which nobody would collect, and actions are passed on as they are, unclipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.stepping.checks import no_number, none_observed
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import RowInfos
from parllel.cages.stepping.trajectories import End, is_number
from parllel.errors import add_note
from parllel.types import Tree


class InfoEnvironments(Environments):
    """Steps a list of environments, writes their results to a row, and keeps the infos of that row."""

    _raw = True

    def __init__(self, stepper: EnvStepper) -> None:
        super().__init__(stepper)
        self._infos: list[dict[str, Any]] = []
        self._finals: dict[int, tuple[Tree, dict[str, Any]]] = {}
        self._none_waits = [False] * len(self._indices)
        self._no_cells: list[None] = [None] * len(self._indices)
        self._forget()

    def _forget(self) -> None:
        # New dicts, which the caller may keep and change.
        self._infos, self._finals = [{} for _ in self._indices], {}

    def take_infos(self) -> RowInfos:
        """Return the infos of the last row or reset."""
        taken = RowInfos(self._infos, self._finals)
        self._forget()
        return taken

    def prepare(self, t: int) -> None:
        """Do nothing: an environment is reset when it is due, as calls in between must find it unchanged."""

    def reset_rows(
        self, t: int, *, all_envs: bool = True, which: NDArray[np.bool_] | None = None
    ) -> None:
        """Reset all environments, those of `which`, or those that need it, into row `t`."""
        self._forget()
        super().reset_rows(t, all_envs=all_envs, which=which)

    def step_or_reset_row(self, t: int) -> None:
        """Step the environments that do not wait with the actions of row `t`, and reset the others."""
        rows = self._rows
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
        else:
            self._run_row(t, rows, rows.read_actions(t), resets=True)

    def _reset_one(self, i: int) -> Tree:
        observation, self._infos[i] = self.stepper.reset_one(i)
        return observation

    def step_row(self, t: int) -> None:
        """Step all environments with the actions of row `t`; those that wait for a reset get zeros."""
        rows = self._rows
        # One condition for all errors, as in `Environments`.
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
        else:
            self._run_row(t, rows, rows.read_actions(t))

    def _run_row(
        self,
        t: int,
        rows: Rows,
        actions: list[Any],
        *,
        by_agent: bool = False,
        resets: bool = False,
    ) -> None:
        stepper = self.stepper
        rewards: list[Any] = []
        infos: list[dict[str, Any]] = []
        ended: list[End] = []
        self._infos, self._finals = infos, {}
        add_reward, add_info = rewards.append, infos.append
        # Read once: an environment that ends in this row waits from the next one on.
        waits = self.needs_reset.tolist() if stepper.n_waiting else self._none_waits
        cells = self._cells_of(t + 1, rows)
        i = -1
        try:
            for i, step, action, cell, waiting in zip(
                self._indices, self._steps, actions, cells, waits, strict=True
            ):
                if waiting:
                    add_reward(0.0)
                    observation, info = stepper.reset_one(i) if resets else (0, {})
                else:
                    observation, reward, terminated, truncated, info = step(action)
                    # Before anything that can raise: the step was made.
                    add_reward(reward)
                    if observation is None:  # numpy would write NaN
                        raise none_observed(stepper.name_of(i))
                    if terminated or truncated:
                        ended.append((i, bool(terminated), bool(truncated)))
                        observation, info = self._end(i, observation, info)
                # Immediately, as the environment may overwrite its array in the next step.
                if cell is None:
                    if waiting and not resets:
                        rows.clear_observation(t + 1, i)
                    else:
                        rows.write_observation(t + 1, i, observation)
                else:
                    cell[...] = observation
                add_info(info)
            row = np.array(rewards, np.float64)
        except Exception as error:
            self._abandon(t, rows, rewards, ended, i, error)
            raise
        rows.write_results(t, row, ended)

    def _end(self, i: int, observation: Tree, info: dict[str, Any]) -> tuple[Tree, dict[str, Any]]:
        """End an episode; return the observation and info to report."""
        if not self.stepper.reset_automatically:
            self.stepper.wait_for_reset(i)
            return observation, info
        self._finals[i] = self.stepper.end_episode(i, observation), info
        return self.stepper.reset_one(i)

    def _cells_of(self, t: int, rows: Rows) -> Sequence[NDArray[Any] | None]:
        # Views of the cells, for a single array of observations; otherwise each is written by its path.
        return self._no_cells if rows.cells is None else rows.cells[t]

    def _abandon(
        self,
        t: int,
        rows: Rows,
        rewards: list[Any],
        ended: list[End],
        failed: int,
        error: Exception,
    ) -> None:
        """Keep the valid part of a failed row."""
        wrong = [k for k, one in enumerate(rewards) if not is_number(one)]
        left_out: list[Any] = [None] * (len(self._indices) - len(rewards))
        rows.write_part(t, rewards + left_out, ended, wrong[0] if wrong else failed)
        self._forget()
        if wrong:
            raise no_number(rewards[wrong[0]], self.stepper.name_of(wrong[0])) from error
        add_note(error, f"in {self.stepper.name_of(failed)}, during step")
