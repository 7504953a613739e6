"""Interface of all cages: rows, as samplers step them, and what can be asked between rows.

    sampler                        cage, and the processes of its environments
    writes action row t
    start_row(t, group) -------->  read action row t, step, write reward, flags and info to row t,
                                   and the observation to row t + 1
    finish_row(group)   <--------  done; only from here on may the sampler read these rows

Until `finish_row` returns, the rows being written belong to the cage. The other columns of these rows
always belong to other cages, so a cage never writes a whole row.

    checkpoint                     environments, in this process or others
    start_environment_states --->  each begins to copy its state
    environment_states       <---  copies
    load_environment_states  --->  each continues from there
    env_method, render       <-->  one call in every environment
    start_close, close       --->  closed, and their processes ended
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.step_result import Crash, FinalObservation, RowInfos
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.system.processes.several import Handle
from parllel.types import Closeable, CompiledActs, State


class PendingRow:
    """A row that was started but not yet finished. The base class represents a row that is done."""

    __slots__ = ()

    def done(self) -> bool:
        """Return whether the row has ended, with or without an error. Does not wait."""
        return True

    def handles(self) -> Sequence[Handle]:
        """Return connections and descriptors that become ready no later than `done` becomes True.

        `multiprocessing.connection.wait` accepts them. The list is empty if there are none, or if
        the row may already be done; `PendingRows` then polls `done` instead.
        """
        return ()


# One object for all rows and cages, as it has no state.
NOTHING = PendingRow()


class HeldEnvironments(Closeable, ABC):
    """Lifecycle, attributes and states of a cage's environments, between rows."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n} x {self.spaces.name})"

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of environments, which is the number of columns."""

    # Set by our cages. An abstract property would break cages that users wrote without it.
    _env_factories: Sequence[EnvFactory] = ()

    @property
    def env_factories(self) -> list[EnvFactory]:
        """The environments' factories in column order; empty if the cage does not know them."""
        return list(self._env_factories)

    @property
    @abstractmethod
    def spaces(self) -> Spaces:
        """The spaces of each environment."""

    @property
    @abstractmethod
    def reset_automatically(self) -> bool:
        """Whether ended environments reset within the same step. Otherwise they wait for a reset."""

    # Separate from the wait, like `start_close`, so that a sampler asks all cages before it waits for the
    # first and their processes work in parallel. In this process there is nothing to ask.
    def start_environment_states(self) -> None:
        """Request the states from other processes; call `environment_states` next."""

    @abstractmethod
    def environment_states(self) -> list[State]:
        """Return the state of each environment for a checkpoint, including the episode in progress.

        Call it between rows, after collecting ended episodes. If an environment cannot save its
        state, `env` is None and `missing` names the class that has no state; see
        `parllel.envs.states.env_state`.
        """

    @abstractmethod
    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `environment_states`; the next row continues from there.

        Environments without a saved state are marked in `needs_reset`. Their next reset is seeded
        from their own seed and `salt`, so that they do not repeat their first episode.

        Raises:
            ValueError: if the states belong to other environments.
        """

    @abstractmethod
    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environments or of their wrappers, and return the result."""

    # Not abstract, like the next one: users' cages without them still serve all samplers.
    def env_apply(
        self,
        function: Callable[..., Any],
        *,
        which: Sequence[int] | None = None,
        arguments: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Call `function(env, *arguments)` in the process of each environment; return the results.

        Args:
            function: called with the environment and its wrappers; pickled for other processes.
            which: numbers of the environments, from 0 to `n` - 1, in any order; None for all.
            arguments: for each of these environments, the further arguments; None for none.

        Raises:
            IndexError, ValueError: if a number or the number of arguments is wrong.
            TypeError: for native vector environments other than a SyncVectorEnv.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement env_apply")

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute to a separate value in each environment.

        Raises:
            AttributeError: if there is no such attribute.
            ValueError: if there is not one value per environment.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement set_attr")

    def render(self) -> Any:
        """Call `render` of each environment."""
        return self.env_method("render")

    # It never raises, so that all cages are asked and close in parallel; `close` raises what went wrong.
    def start_close(self) -> None:
        """Ask other processes to close their environments; call `close` next. Never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments and end their processes. Idempotent."""


class CageInterface(HeldEnvironments):
    """Interface of cages, whose environments write their results to columns of a batch.

    The environments may run in this process or in others. The `start_*` methods start work on a
    row, and `finish_row` waits until it is done. A cage has one or more groups of environments.
    Each group is started and finished separately, so that one group can step while the agent acts
    for another.
    """

    @property
    def groups(self) -> list[slice]:
        """The columns of each group, relative to the cage's first. Together they cover 0 to `n`."""
        # One group is the common case; only a cage with several groups overrides this.
        return [slice(0, self.n)]

    @property
    @abstractmethod
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]; valid between rows."""

    # Not abstract: users' cages without it still work, and raise later.
    def check_open(self) -> None:
        """Check that the cage can be used. Raises ClosedError after `close` and in a fork of the owner.

        Samplers call it before they write anything to a batch.
        """

    @abstractmethod
    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to `columns` of `samples`, after checking shapes and how the memory is shared.

        Raises:
            TypeError, ValueError: if the buffer does not match the spaces or the number of columns.
            RegistrationError: if the cage's process cannot access the memory.
        """

    def use_batch(self, number: int) -> None:
        """Write to batch `number` of a buffer with several batches, from the next row on.

        The cage stays bound, so nothing is checked again or sent to workers. Samplers call this
        between batches, when no row is in progress. If a cage does not override this method,
        samplers call `set_samples_buffer` instead.

        Raises:
            IndexError: if the buffer has no batch of that number.
            WrongStateError: if a row is in progress, or no buffer was set.
        """
        # Not abstract: samplers check whether a cage overrides it (`follows_batches`). Users' cages that were
        # written for buffers of one batch still work: they are bound again for every batch.
        raise NotImplementedError(
            f"{type(self).__name__} does not implement use_batch; call set_samples_buffer instead"
        )

    @abstractmethod
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
        """Start resetting a group's environments, all or those that need it, into observation row `t`.

        Args:
            which: [n] bool, the environments of the cage to reset, whether they need it or not. Those of
                other groups are ignored. Overrides `all_envs`.
            seeds: for each of the cage's environments an int or SeedSequence, or None where the
                generator continues. Those of environments that are not reset are ignored.
            options: passed to `reset` of each environment.

        Raises:
            ValueError: if `which` or `seeds` has the wrong length.
        """

    @abstractmethod
    def start_row(self, t: int, group: int = 0) -> None:
        """Start stepping a group's environments with the actions of row `t`.

        The environments write reward, flags and info to row `t`, and the observation to row `t +
        1`.
        """

    # Not abstract: users' cages without it still serve all samplers.
    def start_row_or_reset(self, t: int, group: int = 0) -> None:
        """Like `start_row`, but environments that wait are reset, their observation written to row `t + 1`.

        Their actions are ignored, and their reward and flags are zero, as in gymnasium's next-step autoreset.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement start_row_or_reset")

    @abstractmethod
    def start_random_row(self, t: int, group: int = 0) -> None:
        """Like `start_row`, with actions sampled from the action spaces and written to row `t`."""

    @property
    def environment_seeds(self) -> Sequence[Any] | None:
        """The seed of each environment, for comparison with other cages; None if unknown."""
        return None

    @property
    def has_policy(self) -> bool:
        """Whether the cage has a policy, so that `start_rollout` can be called."""
        return self.worker_policy is not None

    @property
    def worker_policy(self) -> Any:
        """The function that makes the cage's policies, or None if the cage has no policy."""
        # Only cages with workers override this: in this process a policy in the cage would gain nothing.
        return None

    def start_rollout(self, T: int, group: int = 0) -> None:
        """Start filling rows 0 to `T` - 1 of a group: in each, the policy acts and the environments step.

        The next call must be `finish_row`.

        Raises:
            WrongStateError: if the cage has no policy.
        """
        # Not NotImplementedError: the call is valid as soon as a SynchronizedProcessCage has a policy.
        raise WrongStateError(
            f"{self.spaces.name}: rollout: this {type(self).__name__} has no policy; set one with "
            "SynchronizedProcessCage.set_policy"
        )

    @abstractmethod
    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Start `counts[i]` random steps in environment i, for all `n` environments. They are not recorded.

        No group may be started meanwhile. `finish_row()` without a group waits for all environments.
        """

    def row_done(self, group: int = 0) -> bool:
        """Return whether all workers have finished the row. Does not wait.

        Also returns True if a worker has failed or died; `finish_row` then raises the error.
        Environments in the main process are not considered, as they are stepped by `finish_row`
        itself.

        Raises:
            WrongStateError: if nothing was started for the group.
        """
        return self.awaited(group).done()

    # Not abstract: users' cages without it still work, with one wait after the other.
    def awaited(self, group: int = 0) -> PendingRow:
        """Return the row in progress as a PendingRow, to wait for the rows of several cages at once.

        Valid until `finish_row` or `close` is called. A cage that does not override this reports its rows as
        done, and its `finish_row` waits.

        Raises:
            WrongStateError: if nothing was started for the group.
        """
        return NOTHING

    # Separate from the start, so that one group steps while the agent acts for another.
    @abstractmethod
    def finish_row(self, group: int = 0) -> None:
        """Wait for the work started for the group. An exception of an environment is re-raised."""

    # Not abstract: every cage has it by its two methods.
    def bound_step(self, group: int = 0, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return a function that calls `start_row(t, group)` and `finish_row(group)` for a row of this batch.

        Samplers look it up at the start of each batch.

        truncated_only: the caller will collect the final observations of these rows with `truncated_only`,
            so the cage need not keep those of terminated episodes.
        """
        start_row, finish_row = self.start_row, self.finish_row

        def step_row(t: int) -> None:
            start_row(t, group)
            finish_row(group)

        return step_row

    def bound_rollout(
        self, find_acts: Callable[[], CompiledActs | None], group: int = 0
    ) -> Callable[[int], None] | None:
        """Return a function that fills rows 0 to T - 1 of this batch at once, given T, or None.

        Only cages whose environments are compiled, in this process, have one.

        find_acts: called only by these; returns where the actions come from, or None.
        """
        return None

    @abstractmethod
    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, ordered by column, then by time."""

    def collect_infos(self) -> RowInfos:
        """Return the infos of the last row or reset, of a cage that was made with `infos=True`.

        Raises:
            WrongStateError: if the cage does not keep infos.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement collect_infos")

    @abstractmethod
    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the true final observations of the episodes that have ended since the previous call.

        truncated_only: return only the observations of truncated episodes, and discard all others.
        """

    @property
    def restarts(self) -> int | None:
        """Number of restarts of dead processes so far; None for a cage that restarts none."""
        return None

    @property
    def last_crash(self) -> str:
        """Why the last restart was necessary; "" without restarts."""
        return ""

    def restart_dead(self) -> None:
        """Between two batches: restart processes that have died since the last row.

        Their environments need a reset then, and `collect_crashes` returns them. Does nothing without
        restarts.
        """

    def collect_crashes(self) -> list[Crash]:
        """Return the environments whose process was restarted since the last call, ordered by row.

        In the row of a crash `reward` is 0, and of the flags only `done` is set. The next episode begins
        with the observation of the next row or, with `reset_automatically=False`, with the next reset.
        """
        return []
