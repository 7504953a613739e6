"""Environments stepped one by one whose infos are kept for the caller, who follows the episodes.

    step_row     steps[i](action) for each     -> observation, reward and flags as always
                                               -> infos[i]; at an automatic reset finals[i] as well
    take_infos   between rows                  -> the infos of the latest row, reported once

Vector environments in the form of other libraries are built on these: they report infos in every row, and
expect to find each environment as its last info left it. So resets are not prepared ahead of time, and no
episodes are recorded, which nobody would collect.
"""

from __future__ import annotations

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

    def __init__(self, stepper: EnvStepper) -> None:
        super().__init__(stepper)
        self._infos: list[dict[str, Any]] = []
        self._finals: dict[int, tuple[Tree, dict[str, Any]]] = {}
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

    def _reset_waiting(self, t: int, waiting: NDArray[np.bool_]) -> None:
        # Not `reset_rows`, which would drop the infos of the steps in the same row.
        super().reset_rows(t, which=waiting)

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

    def _run_row(self, t: int, rows: Rows, actions: list[Any], *, by_agent: bool = False) -> None:
        n, stepper, steps = len(self._indices), self.stepper, self._steps
        rewards: list[Any] = [None] * n
        ended: list[End] = []
        finals: dict[int, tuple[Tree, dict[str, Any]]] = {}
        infos: list[dict[str, Any]] = []
        add_info = infos.append
        indices: Any = self._indices
        waiting = stepper.n_waiting > 0
        if waiting:
            indices, steps, actions = self._leave_out_waiting(t, rows, actions, rewards)
        cells: Any = None
        if rows.cells is not None and not waiting:
            cells = rows.cells[t + 1]
        single: Any = None if rows.single is None else rows.single[t + 1]
        automatic = stepper.reset_automatically
        i = -1
        try:
            for i, step, action in zip(indices, steps, actions, strict=True):
                observation, reward, terminated, truncated, info = step(action)
                rewards[i] = reward
                if observation is None:  # numpy would write NaN
                    raise none_observed(stepper.name_of(i))
                if terminated or truncated:
                    ended.append((i, bool(terminated), bool(truncated)))
                    observation = stepper.end_episode(i, observation)
                    if automatic:
                        finals[i] = observation, info
                        observation, info = stepper.reset_one(i)
                # Immediately, as the environment may overwrite its array in the next step.
                if cells is not None:
                    cells[i][...] = observation
                elif single is not None:
                    single[i] = observation
                else:
                    rows.write_observation(t + 1, i, observation)
                add_info(info)
            row = np.array(rewards, np.float64)
        except Exception as error:
            wrong = [k for k, one in enumerate(rewards) if one is not None and not is_number(one)]
            rows.write_part(t, rewards, ended, wrong[0] if wrong else i)
            if wrong:
                raise no_number(rewards[wrong[0]], stepper.name_of(wrong[0])) from error
            add_note(error, f"in {stepper.name_of(i)}, during step")
            raise
        rows.write_results(t, row, ended)
        if waiting:
            self._forget()
            for i, info in zip(indices, infos, strict=True):
                self._infos[i] = info
        else:
            self._infos = infos
        self._finals = finals
