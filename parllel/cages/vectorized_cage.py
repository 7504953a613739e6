"""Cage whose environments run in this process.

    sampler                  cage
    start_row(t)  -------->  steps all environments, and returns when row t is written
    finish_row()             marks the row as finished; there is no work left

Calls out of order are refused just as in cages with workers, so code that runs with this cage runs with any
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.samples import Samples
from parllel.cages.argument_checks import (
    check_batch,
    check_calls,
    check_group,
    check_reset_arguments,
    check_states,
    check_values,
    check_which,
    no_infos,
)
from parllel.cages.cage_interface import NOTHING, CageInterface, PendingRow
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.batched_trajectories import sees_agent_info
from parllel.cages.stepping.environments_for import environments_for, factories_by_column
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.rows import Rows, cage_part
from parllel.cages.stepping.step_result import FinalObservation, RowInfos
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.errors import ClosedError, WrongStateError
from parllel.types import CompiledActs, State, overrides


class VectorizedCage(CageInterface):
    """Any number of environments in this process, stepped one by one or as one native vector environment.

    Args:
        env_factories: functions without arguments that make the environments; may be classes or
            lambdas. All environments must have equal spaces. Pass a `VectorEnvFactory` for one
            native vector environment.
        n: number of environments of a VectorEnvFactory; omit it otherwise.
        traj_info: function that makes the record of one episode, e.g. `partial(TrajInfo,
            discount=0.99)`.
        reset_automatically: reset an ended environment within the same step. Otherwise it is not stepped
            until the next reset (see `needs_reset`).
        seeds: for each environment, an int that seeds its first reset, or a SeedSequence from which
            that seed is drawn. It also seeds the environment's random actions. None draws seeds.
        index: number of the first environment, for error messages.
        check: when to check the values that environments return: in the "first_step" or the
            "first_episode" of each, or "always".
        infos: keep the infos and last observations of each row for `collect_infos`. The caller then
            follows the episodes, as none are collected, and clips the actions.

    Attributes and methods of the environments are available on the cage, as lists with one entry each:
    `cage.gravity`, `cage.env_method("get_state")`; `cage.gravity = 3` sets all.

    Raises:
        ValueError: if there is no factory, or not one seed per environment.
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
        infos: bool = False,
    ) -> None:
        # Checked before the first environment is made, when there is nothing to close yet.
        self._env_factories, seeds = factories_by_column(env_factories, n, seeds, "VectorizedCage")
        # If this raises it has closed what it made, and the cage owns nothing yet.
        self._envs = environments_for(
            env_factories,
            seeds,
            traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
            infos=infos,
        )
        self._name = self._envs.name
        self._n = len(seeds)
        self._seeds = list(seeds)
        self._sees_agent_info = sees_agent_info(traj_info)
        self._reset_automatically = reset_automatically
        self._rows: Rows | None = None
        # Against mistakes of a single thread: nothing is locked, here or in the other cages.
        self._order = _CallOrder(self._name)

    # ------------------------------------------------------------------ rows

    @property
    def n(self) -> int:
        """Number of environments."""
        return self._n

    @property
    def spaces(self) -> Spaces:
        """The spaces of each environment."""
        return self._envs.spaces

    @property
    def environment_seeds(self) -> list[Any]:
        """The argument `seeds`; a list of None if they were drawn."""
        return list(self._seeds)

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]."""
        # Not a copy: every row updates this array in place.
        return self._envs.needs_reset

    @property
    def reset_automatically(self) -> bool:
        """The argument `reset_automatically`."""
        return self._reset_automatically

    def check_open(self) -> None:
        """Check that the cage was not closed. Raises ClosedError."""
        self._order.check_open()

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its columns of `samples`."""
        self._order.check_idle("set_samples_buffer")
        # Only the fields that a cage reads or writes, which is also all that workers get.
        action, fields = cage_part(samples, agent_info=self._sees_agent_info)
        # If this raises, cage and environments keep their earlier binding.
        self._rows = self._envs.bind(action, NamedArrayTuple(**fields), columns)

    def use_batch(self, number: int) -> None:
        """Switch to batch `number` of the buffer."""
        self._order.check_idle("use_batch")
        check_batch(number, 0 if self._rows is None else self._rows.n_batches, self._name)
        # check_batch raises for a cage without a buffer.
        assert self._rows is not None
        self._rows.use_batch(number)

    def start_reset(
        self,
        t: int = 0,
        *,
        all_envs: bool = True,
        which: NDArray[np.bool_] | None = None,
        seeds: Sequence[Any] | None = None,
        options: dict[str, Any] | None = None,
        group: int = 0,
    ) -> None:
        """Reset immediately; `finish_row` completes the call."""
        self._begin("start_reset", group)
        if which is not None:
            which = check_which(which, self._n, self._name)
        if seeds is not None or options is not None:
            check_reset_arguments(seeds, options, self._n, self._name)
            chosen = self.needs_reset | all_envs if which is None else which
            self._envs.set_reset(chosen, seeds, options)
        # No resets are prepared ahead in this process: it is never idle.
        self._envs.reset_rows(t, all_envs=all_envs, which=which)
        # Set after the work: a start that raised leaves nothing in progress, so another start may follow.
        self._order.in_progress = "reset", t

    def start_row(self, t: int, group: int = 0) -> None:
        """Step immediately with the actions of row `t`; `finish_row` completes the call."""
        self._begin("start_row", group)
        # An error of an environment is raised here; cages with workers raise it in `finish_row`.
        self._envs.step_row(t)
        self._order.in_progress = "step", t

    def start_row_or_reset(self, t: int, group: int = 0) -> None:
        """Step or reset immediately; `finish_row` completes the call."""
        self._begin("start_row_or_reset", group)
        self._envs.step_or_reset_row(t)
        self._order.in_progress = "step", t

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Step immediately with random actions; `finish_row` completes the call."""
        self._begin("start_random_row", group)
        self._envs.random_row(t)
        self._order.in_progress = "random step", t

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Take random steps immediately; `finish_row` completes the call."""
        self._begin("start_decorrelation")
        self._envs.decorrelate(counts, t)
        self._order.in_progress = "decorrelation", None

    def awaited(self, group: int = 0) -> PendingRow:
        """Return a row that is already done."""
        # Checked although there is nothing to wait for: a missing start would go unnoticed until
        # the code runs with workers.
        self._order.check_started("row_done", group)
        return NOTHING

    def finish_row(self, group: int = 0) -> None:
        """Complete the row in progress."""
        self._order.check_started("finish_row", group)
        self._order.in_progress = None

    def bound_step(self, group: int = 0, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return a function that steps a row of this batch, see `CageInterface.bound_step`."""
        if group or overrides(self, VectorizedCage, "start_row", "finish_row"):
            return super().bound_step(group)
        # A subclass may collect more than its caller asks for.
        if truncated_only and overrides(self, VectorizedCage, "collect_final_observations"):
            truncated_only = False
        order, step = self._order, self._envs.bound_step(truncated_only=truncated_only)

        def step_row(t: int) -> None:
            # The check of `start_row`. There is nothing to finish.
            if order.closed or order.in_progress is not None:
                order.check_idle("start_row")
            step(t)

        return step_row

    def bound_rollout(
        self, find_acts: Callable[[], CompiledActs | None], group: int = 0
    ) -> Callable[[int], None] | None:
        """Return a function that fills the rows of this batch at once, see `CageInterface.bound_rollout`."""
        if group or overrides(self, VectorizedCage, "start_row", "finish_row", "bound_step"):
            return None
        order, fill = self._order, self._envs.bound_rollout(find_acts)
        if fill is None:
            return None

        def roll_out(T: int) -> None:
            order.check_idle("roll_out")
            fill(T)

        return roll_out

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call."""
        self._order.check_idle("collect_completed_trajs")
        return self._envs.take_completed()

    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the final observations of the episodes that have ended since the previous call."""
        # Only between rows, as in cages with workers.
        self._order.check_idle("collect_final_observations")
        return self._envs.take_final(truncated_only=truncated_only)

    def collect_infos(self) -> RowInfos:
        """Return the infos of the last row or reset."""
        self._order.check_idle("collect_infos")
        infos = self._envs.take_infos()
        if infos is None:
            raise no_infos(self._name)
        return infos

    def environment_states(self) -> list[State]:
        """Return the state of each environment for a checkpoint."""
        self._order.check_idle("environment_states")
        return self._envs.states()

    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `environment_states`."""
        self._order.check_idle("load_environment_states")
        # All or nothing: with a state missing, some environments would be at another point of the run.
        check_states(states, self.n, self._name)
        self._envs.load_states(states, salt)

    # ------------------------------------------------------------------ the environments themselves

    def _of_each(self, values: list[Any]) -> Any:
        """Return the per-environment values as the user sees them."""
        # Overridden by `Cage`, whose users see a single value.
        return values

    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each environment, found through its wrappers."""
        self._order.check_idle(name)
        return self._of_each(self._envs.method(name, args, kwargs))

    def env_apply(
        self,
        function: Callable[..., Any],
        *,
        which: Sequence[int] | None = None,
        arguments: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Call a function with each environment or some of them; return the results."""
        self._order.check_idle("env_apply")
        numbers, calls = check_calls(which, arguments, self._n, self._name)
        results = self._envs.apply(function, calls)
        return [results[i] for i in numbers]

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute to a separate value in each environment."""
        self._order.check_idle("set_attr")
        self._envs.set_each(name, check_values(values, self._n, self._name, name))

    def __getattr__(self, name: str) -> Any:
        # Called only when ordinary lookup has failed. A private name never belongs to the environment. It may
        # be one that `__init__` has not set yet: looking it up below would recurse without end.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        # Not while a row is in progress: with workers the value could be from before or after the step.
        self._order.check_idle(name)
        return self._of_each(self._envs.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        # Private names and names of the class are the cage's own; everything else goes to the environments.
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
            return
        self._order.check_idle(name)
        self._envs.set(name, value)

    def close(self) -> None:
        """Close the environments. Idempotent."""
        if self._order.closed:
            return
        # Before closing, which may raise: a second call must not close the environments again.
        self._order.closed, self._rows = True, None
        self._envs.close()

    def _begin(self, method: str, group: int = 0) -> None:
        self._order.check_idle(method)
        # Group 0 is the only valid one, and this runs in every row.
        if group:
            check_group(group, 1, self._name)


class _CallOrder:
    """Checks the order of calls, with the rules of cages with workers.

    idle --- begin ---> in progress --- end ---> idle, or closed from either

    Attributes:
        in_progress: the operation in progress and its row; None while idle.
        closed: whether the cage was closed.
    """

    __slots__ = ("_name", "closed", "in_progress")

    def __init__(self, name: str) -> None:
        self._name = name
        self.closed = False
        self.in_progress: tuple[str, int | None] | None = None

    def check_open(self) -> None:
        """Check that `close` was not called. Raises ClosedError."""
        if self.closed:
            raise ClosedError(f"{self._name}: used after close()")

    def check_idle(self, method: str) -> None:
        """Check that nothing is in progress. Raises WrongStateError, or ClosedError once closed."""
        # One condition in the usual case; which error to raise is decided only if there is one.
        if self.closed or self.in_progress is not None:
            self.check_open()
            assert self.in_progress is not None
            what, t = self.in_progress
            where = "" if t is None else f" at row {t}"
            raise WrongStateError(f"{self._name}: {method}: {what}{where} is not finished")

    def check_started(self, method: str, group: int) -> None:
        """Check that the only group has an operation in progress. Raises WrongStateError, or ClosedError."""
        if group or self.in_progress is None or self.closed:
            self.check_open()
            check_group(group, 1, self._name)
            raise WrongStateError(f"{self._name}: {method}() was called without a start")
