"""A cage whose environments live in this process.

    sampler                  cage
    start_row(t)  -------->  steps all environments, and returns when row t is written
    finish_row()             marks the row as finished: nothing is left to be done

The order is that of cages with workers, and calls out of order are refused as those refuse them, so that what
runs with this cage runs with any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.samples import Samples
from parllel.cages.argument_checks import (
    check_batch,
    check_group,
    check_states,
)
from parllel.cages.cage_interface import NOTHING, CageInterface, PendingRow
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.batched_trajectories import sees_agent_info
from parllel.cages.stepping.environments_for import environments_for, factories_by_column
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.rows import Rows, cage_part
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.errors import ClosedError, WrongStateError
from parllel.types import State


class VectorizedCage(CageInterface):
    """Any number of environments in this process, stepped one after the other, or all by one call.

    Args:
        env_factories: make the environments: functions without arguments, classes, lambdas. Their
            spaces must be equal. Or a `VectorEnvFactory`, for one native vector environment.
        n: how many environments a VectorEnvFactory is to make; otherwise left out.
        traj_info: makes the record of one episode, e.g. `partial(TrajInfo, discount=0.99)`.
        reset_automatically: reset an ended environment within the same step. Otherwise it stays still
            until a reset (`needs_reset`).
        seeds: for each environment an int, the seed of its first reset, or a SeedSequence from which that is
            drawn; its random actions follow from it too. None draws them.
        index: number of the first environment, for messages.
        check: test what environments return, "first_episode" of each or "always".

    Attributes and methods of the environments are reached through the cage, as lists with one entry each:
    `cage.gravity`, `cage.env_method("get_state")`; `cage.gravity = 3` sets all.

    Raises:
        ValueError: if there is no factory, or not one seed for each.
    """

    def __init__(
        self,
        env_factories: Sequence[EnvFactory] | VectorEnvFactory,
        *,
        n: int | None = None,
        traj_info: TrajInfoFactory = TrajInfo,
        reset_automatically: bool = True,
        seeds: Sequence[Any] | None = None,
        index: int = 0,
        check: str = "first_episode",
    ) -> None:
        # Before the first environment is made, so that there is nothing to close.
        self._env_factories, seeds = factories_by_column(env_factories, n, seeds, "VectorizedCage")
        self._envs = environments_for(
            env_factories,
            seeds,
            traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
        )
        self._name = self._envs.name
        self._n = len(seeds)
        self._seeds = list(seeds)
        self._sees_agent_info = sees_agent_info(traj_info)
        self._reset_automatically = reset_automatically
        self._rows: Rows | None = None
        self._order = _CallOrder(self._name)

    # ------------------------------------------------------------------ rows

    @property
    def n(self) -> int:
        """How many environments there are."""
        return self._n

    @property
    def spaces(self) -> Spaces:
        """The spaces of each environment."""
        return self._envs.spaces

    @property
    def environment_seeds(self) -> list[Any]:
        """The argument `seeds`; None for each if they were drawn."""
        return list(self._seeds)

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]."""
        return self._envs.needs_reset

    @property
    def reset_automatically(self) -> bool:
        """The argument of that name."""
        return self._reset_automatically

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its columns of `samples`."""
        self._order.check_idle("set_samples_buffer")
        # Only the cage's part of the buffer, as workers get no more either.
        action, fields = cage_part(samples, agent_info=self._sees_agent_info)
        self._rows = self._envs.bind(action, NamedArrayTuple(**fields), columns)

    def use_batch(self, number: int) -> None:
        """Switch to batch `number` of the buffer."""
        self._order.check_idle("use_batch")
        check_batch(number, 0 if self._rows is None else self._rows.n_batches, self._name)
        # The check has refused a number for a cage without a buffer.
        assert self._rows is not None
        self._rows.use_batch(number)

    def start_reset(self, t: int = 0, *, all_envs: bool = True, group: int = 0) -> None:
        """Reset, now; `finish_row` completes the call."""
        self._begin("start_reset", group)
        # Nothing is prepared ahead in this process: there is no time in which only others work.
        self._envs.reset_rows(t, all_envs=all_envs)
        # Set after the work: a start that raised has started nothing, and the next call may be another start.
        self._order.in_progress = "reset", t

    def start_row(self, t: int, group: int = 0) -> None:
        """Step with the action of row `t`, now; `finish_row` completes the call."""
        self._begin("start_row", group)
        self._envs.step_row(t)
        self._order.in_progress = "step", t

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Step with random actions, now; `finish_row` completes the call."""
        self._begin("start_random_row", group)
        self._envs.random_row(t)
        self._order.in_progress = "random step", t

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Take random steps, now; `finish_row` completes the call."""
        self._begin("start_decorrelation")
        self._envs.decorrelate(counts, t)
        self._order.in_progress = "decorrelation", None

    def awaited(self, group: int = 0) -> PendingRow:
        """Return nothing to wait for, as what was started is done at once."""
        self._order.check_started("row_done", group)
        return NOTHING

    def finish_row(self, group: int = 0) -> None:
        """Complete what was started."""
        self._order.check_started("finish_row", group)
        self._order.in_progress = None

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call."""
        self._order.check_idle("collect_completed_trajs")
        return self._envs.take_completed()

    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the last observations of episodes that ended in rows since the last call."""
        # Between rows, as a worker's list of them can only be read then.
        self._order.check_idle("collect_final_observations")
        return self._envs.take_final(truncated_only=truncated_only)

    def environment_states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment."""
        self._order.check_idle("environment_states")
        return self._envs.states()

    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `environment_states` returned."""
        self._order.check_idle("load_environment_states")
        # All or nothing: a state too few would leave some environments at another point of the run.
        check_states(states, self.n, self._name)
        self._envs.load_states(states, salt)

    # ------------------------------------------------------------------ the environments themselves

    def _of_each(self, values: list[Any]) -> Any:
        """Return what a user gets for one value from each environment."""
        # Overridden by `Cage`, whose users see one environment and not a list.
        return values

    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each environment, found through its wrappers."""
        self._order.check_idle(name)
        return self._of_each(self._envs.method(name, args, kwargs))

    def __getattr__(self, name: str) -> Any:
        # Called only where ordinary lookup failed. A private name is never the environment's.
        # Also while `__init__` has not set it yet: looking it up below would come back here, without end.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        # Not while a row is started: with workers the answer could be of before the step or of after it.
        self._order.check_idle(name)
        return self._of_each(self._envs.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        # The cage's own attributes; everything else that a user sets is meant for the environments.
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
            return
        self._order.check_idle(name)
        self._envs.set(name, value)

    def close(self) -> None:
        """Close the environments; may be called twice."""
        if self._order.closed:
            return
        # Before closing, which may raise: a second call must not close environments twice.
        self._order.closed, self._rows = True, None
        self._envs.close()

    def _begin(self, method: str, group: int = 0) -> None:
        self._order.check_idle(method)
        # Asked only for what is not the usual group, as this runs in each row.
        if group:
            check_group(group, 1, self._name)


class _CallOrder:
    """Refuse calls out of order, as cages with workers do.

    idle --- begin ---> in progress --- end ---> idle, or closed from either

    Attributes:
        in_progress: what was started and not finished, and at which row; None if nothing was.
        closed: whether the cage was closed.
    """

    __slots__ = ("_name", "closed", "in_progress")

    def __init__(self, name: str) -> None:
        self._name = name
        self.closed = False
        self.in_progress: tuple[str, int | None] | None = None

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self.closed:
            raise ClosedError(f"{self._name}: used after close()")

    def check_idle(self, method: str) -> None:
        """Raise unless a method may be called that nothing may be in progress for."""
        # One condition in the usual case; which error it is matters only if there is one.
        if self.closed or self.in_progress is not None:
            self.check_open()
            assert self.in_progress is not None
            what, t = self.in_progress
            where = "" if t is None else f" at row {t}"
            raise WrongStateError(f"{self._name}: {method}: {what}{where} is not finished")

    def check_started(self, method: str, group: int) -> None:
        """Raise unless the only group has something in progress."""
        if group or self.in_progress is None or self.closed:
            self.check_open()
            check_group(group, 1, self._name)
            raise WrongStateError(f"{self._name}: {method}() without a start")
