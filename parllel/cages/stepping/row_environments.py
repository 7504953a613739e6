"""What places environments in a process asks of them: rows, episodes, attributes, states.

    who calls                              reads                  writes, in the cage's columns alone
    step_row(t)     cage, worker           action[t]              observation[t + 1], then reward and flags[t]
    random_row(t)                          the action spaces      action[t], and the same
    reset_rows(t)                                                 observation[t]
    prepare(t)      worker, after it has   needs_reset            nothing of the batch: that is main's by then
                    reported row t
    take_*          cage, between rows                            nothing

`VectorizedCage` in this process, and `EnvironmentShare` in others, know no more than this class:
`Environments` steps environments one after the other, `VectorEnvironments` all by one call. All that is not a
row is up to their `Stepper`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.cages.argument_checks import check_counts, check_row
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.stepping.stepper import Stepper
from parllel.cages.stepping.trajectories import Packed
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.types import State, Tree


class RowEnvironments(ABC):
    """Environments of one process that fill rows of a batch.

    Args:
        stepper: of the environments; closed with this.

    Attributes:
        stepper: the argument of that name.
        index: number of the first one, for messages.
        name: what messages call them.
        spaces: of each environment.
        needs_reset: [n] bool, always the same array.
    """

    # Whether all are stepped by one call, so that rows are read and written as wholes.
    _stacked = False

    def __init__(self, stepper: Stepper) -> None:
        self.index, self.name, self.spaces = stepper.index, stepper.name, stepper.spaces
        self.needs_reset = stepper.needs_reset
        self.stepper = stepper
        self._trajs = stepper.trajs
        # Kept, as each row goes over it.
        self._indices = range(len(self.needs_reset))
        self._final: list[FinalObservation] = []
        self._rows: Rows | None = None
        self._started = False

    def bind(self, action: Tree, env: NamedArrayTuple, columns: slice) -> Rows:
        """Make, keep and return views of the rows of `columns`; one column for each environment."""
        B, n = env.reward.shape[1], len(self._indices)
        # A wrong slice would write into columns of other environments, unnoticed.
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != n:
            raise ValueError(
                f"{self.name}: columns: expected {n} of the {B} that there are, got {columns}"
            )
        self._rows = Rows(action, env, columns, self.spaces, stacked=self._stacked)
        return self._rows

    @abstractmethod
    def reset_rows(self, t: int, *, all_envs: bool) -> None:
        """Write reset observations into row `t`: of all, or of those that need a reset."""

    @abstractmethod
    def step_row(self, t: int) -> None:
        """Step all with the actions of row `t`; ended ones that wait for a reset get zeros."""

    def random_row(self, t: int) -> None:
        """Draw the actions of row `t` from the action spaces, write them, and step."""
        rows = self._bound()
        self._check_row(t, rows)
        # Drawn for those that wait as well, so that a seed decides the same actions however environments are
        # stepped. The agent_info of the row belongs to other actions, so TrajInfos do not see it.
        actions = [space.sample() for space in self.stepper.action_spaces]
        for i, action in enumerate(actions):
            rows.write_action(t, i, action)
        self._run_drawn(t, rows, actions)

    @abstractmethod
    def _run_drawn(self, t: int, rows: Rows, actions: list[Any]) -> None:
        """Step all with these actions, one for each."""

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[i]` random steps and write the observations reached into row `t`.

        Episodes that end on the way are not reported; the one in progress is, in full. For how a native
        vector environment takes fewer steps of some than of others, see `VectorStepper.random_steps`.
        """
        rows = self._bound()
        check_row(t, rows.T + 1, self.name)
        check_counts(counts, len(self._indices), self.name)
        # Those that ended in rows before are kept; they have not been collected yet.
        completed = self._trajs.count()
        try:
            self._step_randomly(counts, t, rows)
        finally:
            self._trajs.forget_after(completed)

    @abstractmethod
    def _step_randomly(self, counts: Sequence[int], t: int, rows: Rows) -> None:
        """Take random steps, and write row `t`."""

    def prepare(self, t: int) -> None:
        """Do after row `t`, while no process waits, what would be waited for later.

        Ended environments are reset, into private memory; after the last row statistics are added up.
        """
        # Main asks for the episodes after the last row; this is the time in which it is busy with the batch.
        if self._rows is not None and t + 1 == self._rows.T:
            self._trajs.prepare()
        # Before the first `reset_rows` all environments are marked, but none of them has ended.
        if self.stepper.n_waiting and self._started:
            self.stepper.prepare_resets()

    def _refuse_row(self, t: int) -> None:
        """Raise what is wrong with stepping a row with the buffer's actions."""
        rows = self._bound()
        if rows.read_actions is None:
            raise WrongStateError(f"{self.name}: bound without a buffer of actions")
        self._check_row(t, rows)

    def _check_row(self, t: int, rows: Rows) -> None:
        check_row(t, rows.T, self.name)
        if not self._started:
            raise WrongStateError(f"{self.name}: stepped before a reset")

    def _bound(self) -> Rows:
        # Not an assertion: a cage may be used by its other methods without ever being bound.
        if self._rows is None:
            raise WrongStateError(f"{self.name}: no samples buffer was set")
        return self._rows

    def _show_agent_infos(self, t: int, rows: Rows) -> None:
        """Pass the agent_info of row `t` to the TrajInfos of those that are going to be stepped."""
        # Before the steps, as `see_agent_info` belongs to the step that follows; those that wait make none.
        for i in np.flatnonzero(~self.needs_reset).tolist():
            self._trajs.see_agent_info(i, rows.agent_info_of(t, i))

    def states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, between two rows."""
        return self.stepper.states()

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore what `states` returned; for `salt` and errors see `Stepper.load_states`."""
        # No reset has to come first: the states bring episodes that are in progress.
        self.stepper.load_states(states, salt)
        self._started = True

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment."""
        return self.stepper.get(name)

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment; AttributeError where it is not found."""
        self.stepper.set(name, value)

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""
        return self.stepper.method(name, args, kwargs)

    def take_completed(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by column, then in time."""
        return self._trajs.take()

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Return the same for `unpack`; see there for `at_once`."""
        return self._trajs.take_packed(at_once=at_once)

    @property
    def packs_numbers(self) -> bool:
        """Whether `take_packed` returns nothing but numbers."""
        return not self._trajs.per_step

    def take_final(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the last observations of the episodes that ended in rows since the last call."""
        # Those that are not asked for go as well: a later call must not return them for another batch.
        final, self._final = self._final, []
        # Sorted out here, where they are: a sampler that bootstraps sends none of the others through a pipe.
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
        """Close all environments, each whatever the others do; raises the first error at the end."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.release()
        self.stepper.close()
