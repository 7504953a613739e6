"""Base class for the environments of one process: rows, episodes, attributes and states.

    who calls                              reads                  writes, only in the cage's columns
    step_row(t)     cage, worker           action[t]              observation[t + 1], then reward and flags[t]
    random_row(t)                          the action spaces      action[t], and the same as step_row
    reset_rows(t)                                                 observation[t]
    prepare(t)      worker, after it has   needs_reset            nothing: the batch is main's by then
                    reported row t
    take_*          cage, between rows                            nothing

`VectorizedCage` in this process and `EnvironmentShare` in workers use only this interface. `Environments`
steps environments one by one, `VectorEnvironments` all by one call. Everything but rows is delegated to their
`Stepper`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.cages.argument_checks import check_counts, check_row
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import FinalObservation, RowInfos
from parllel.cages.stepping.stepper import Stepper
from parllel.cages.stepping.trajectories import Packed
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.types import CompiledActs, State, Tree


class RowEnvironments(ABC):
    """Environments of one process that fill rows of a batch.

    Args:
        stepper: object that makes and steps the environments; closed together with this object.

    Attributes:
        stepper: the argument `stepper`.
        index: number of the first environment, for messages.
        name: name of the environments, for messages.
        spaces: the spaces of each environment.
        needs_reset: [n] bool. The array object never changes.
    """

    # Whether all are stepped by one call, with rows read and written as a whole.
    _stacked = False
    # Whether actions reach the environments as gymnasium's vector environments pass them.
    _raw = False

    def __init__(self, stepper: Stepper) -> None:
        self.index, self.name, self.spaces = stepper.index, stepper.name, stepper.spaces
        self.needs_reset = stepper.needs_reset
        self.stepper = stepper
        self._trajs = stepper.trajs
        # Kept, as each row iterates over it.
        self._indices = range(len(self.needs_reset))
        self._final: list[FinalObservation] = []
        self._rows: Rows | None = None
        self._started = False

    def bind(self, action: Tree, env: NamedArrayTuple, columns: slice) -> Rows:
        """Bind to `columns` of a batch, one per environment; return the views of its rows."""
        B, n = env.reward.shape[1], len(self._indices)
        # A wrong slice would silently overwrite columns of other environments.
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != n:
            raise ValueError(
                f"{self.name}: columns: expected {n} of the {B} columns in the batch, got {columns}"
            )
        # If this raises, the earlier binding stays.
        self._rows = Rows(action, env, columns, self.spaces, stacked=self._stacked, raw=self._raw)
        return self._rows

    @abstractmethod
    def reset_rows(
        self, t: int, *, all_envs: bool = True, which: NDArray[np.bool_] | None = None
    ) -> None:
        """Reset environments, and write their observations into row `t`.

        which: [n], the environments to reset; None for all, or without `all_envs` for those that need it.
        """

    def set_reset(
        self,
        which: NDArray[np.bool_],
        seeds: Sequence[Any] | None,
        options: dict[str, Any] | None,
    ) -> None:
        """Set seeds and options of the next reset of the environments of `which`, [n]."""
        self.stepper.set_reset(which, seeds, options)

    @abstractmethod
    def step_row(self, t: int) -> None:
        """Step all environments with the actions of row `t`; those that wait for a reset get zeros."""

    def bound_step(self, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return `step_row`, or a faster function with the same effects for the current batch.

        truncated_only: the final observations of terminated episodes need not be kept.
        """
        return self.step_row

    def bound_rollout(
        self, find_acts: Callable[[], CompiledActs | None]
    ) -> Callable[..., None] | None:
        """Return a function that fills rows 0 to T - 1 of the current batch at once; None if there is none.

        It takes T and, optionally, a function to call with the number of finished rows now and then.

        find_acts: called only where there may be one; returns where the actions come from, or None.
        """
        return None

    def step_or_reset_row(self, t: int) -> None:
        """Step the environments that do not wait with the actions of row `t`, and reset the others."""
        waiting = self.needs_reset.copy()
        self.step_row(t)
        if waiting.any():
            # Into the row of the other observations; reward and flags are zero there already.
            self._reset_waiting(t + 1, waiting)

    def _reset_waiting(self, t: int, waiting: NDArray[np.bool_]) -> None:
        self.reset_rows(t, which=waiting)

    def take_infos(self) -> RowInfos | None:
        """Return the infos of the last row; None if they are not kept."""
        return None

    def random_row(self, t: int) -> None:
        """Sample the actions of row `t` from the action spaces, write them, and step."""
        rows = self._bound()
        self._check_row(t, rows)
        # Sampled for waiting environments too, so that a seed gives the same actions however environments are
        # stepped. The row's agent_info belongs to other actions, so TrajInfos do not see it.
        actions = [space.sample() for space in self.stepper.action_spaces]
        for i, action in enumerate(actions):
            rows.write_action(t, i, action)
        self._run_drawn(t, rows, actions)

    def lose_row(self, t: int) -> None:
        """Write a row without steps, for environments whose episodes were lost with another process.

        With automatic resets, row `t + 1` holds the first observations of new episodes.
        """
        rows = self._bound()
        check_row(t, rows.T, self.name)
        rows.write_loss(t)
        if self.stepper.reset_automatically:
            self.reset_rows(t + 1)
            return
        for i in self._indices:
            rows.clear_observation(t + 1, i)
        self._started = True

    @abstractmethod
    def _run_drawn(self, t: int, rows: Rows, actions: list[Any]) -> None:
        """Step all environments with these actions, one for each."""

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[i]` random steps and write the resulting observations into row `t`.

        Episodes that end during these steps are not reported. The episode in progress is later
        reported in full. See `VectorStepper.random_steps` for how a native vector environment takes
        different numbers of steps.
        """
        rows = self._bound()
        check_row(t, rows.T + 1, self.name)
        check_counts(counts, len(self._indices), self.name)
        # Episodes that ended in earlier rows are kept, as they may not have been collected yet.
        completed = self._trajs.count()
        try:
            self._step_randomly(counts, t, rows)
        finally:
            self._trajs.forget_after(completed)

    @abstractmethod
    def _step_randomly(self, counts: Sequence[int], t: int, rows: Rows) -> None:
        """Take random steps, and write the observations reached to row `t`."""

    def prepare(self, t: int) -> None:
        """Do work ahead of time after row `t`, while no process waits for this one.

        Resets ended environments into private memory; after the last row, also adds up statistics.
        """
        # Main collects the episodes after the last row; until then it is busy with the batch.
        if self._rows is not None and t + 1 == self._rows.T:
            self._trajs.prepare()
        # Before the first `reset_rows` all environments are marked, but none of them has ended.
        if self.stepper.n_waiting and self._started:
            self.stepper.prepare_resets()

    def _refuse_row(self, t: int) -> None:
        """Raise the error for a row that cannot be stepped with the buffer's actions."""
        rows = self._bound()
        if rows.read_actions is None:
            raise WrongStateError(f"{self.name}: bound without an action buffer")
        self._check_row(t, rows)

    def _check_row(self, t: int, rows: Rows) -> None:
        check_row(t, rows.T, self.name)
        if not self._started:
            raise WrongStateError(f"{self.name}: stepped before a reset")

    def _bound(self) -> Rows:
        # Not an assertion: a cage's other methods can be used without ever binding it.
        if self._rows is None:
            raise WrongStateError(f"{self.name}: no samples buffer was set")
        return self._rows

    def _show_agent_infos(self, t: int, rows: Rows) -> None:
        """Pass the agent_info of row `t` to the TrajInfos of the environments about to be stepped."""
        # Before the steps, as `see_agent_info` belongs to the following `step`. Waiting environments take
        # none.
        for i in np.flatnonzero(~self.needs_reset).tolist():
            self._trajs.see_agent_info(i, rows.agent_info_of(t, i))

    def states(self) -> list[State]:
        """Return the state of each environment for a checkpoint, between two rows."""
        return self.stepper.states()

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `states`; for `salt` and errors see `Stepper.load_states`."""
        # Rows may follow without a reset, as the states include episodes in progress.
        self.stepper.load_states(states, salt)
        self._started = True

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment."""
        return self.stepper.get(name)

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment. Raises AttributeError if there is none."""
        self.stepper.set(name, value)

    def set_each(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute to a separate value in each environment, or raise AttributeError."""
        self.stepper.set_each(name, values)

    def apply(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...] | None]
    ) -> list[Any]:
        """Call a function with each environment whose entry in `calls` is not None."""
        return self.stepper.apply(function, calls)

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""
        return self.stepper.method(name, args, kwargs)

    def take_completed(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, ordered by column, then by time."""
        return self._trajs.take()

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Return the ended episodes packed for `unpack`; see `Trajectories.take_packed` for `at_once`."""
        return self._trajs.take_packed(at_once=at_once)

    @property
    def packs_numbers(self) -> bool:
        """Whether `take_packed` returns plain numbers."""
        return not self._trajs.per_step

    def take_final(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the final observations of the episodes that have ended since the previous call."""
        # All are taken: a later call must not return the others for another batch.
        final = self._final
        if not final:
            return []
        self._final = []
        # Filtered here, in the worker, so that unwanted ones are not sent through the pipe.
        return [one for one in final if one.truncated] if truncated_only else final

    @property
    def has_completed(self) -> bool:
        """Whether `take_completed` would return anything."""
        return self._trajs.has_completed

    @property
    def has_final(self) -> bool:
        """Whether `take_final` would return anything."""
        return bool(self._final)

    def close(self) -> None:
        """Close all environments even if some fail, then raise the first error."""
        # Taken first: a second call, as workers make it, must not release the views again.
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.release()
        self.stepper.close()
