"""The interface of cages: rows, as samplers use them, and what may be asked while none is being stepped.

    sampler                        cage, and the processes of its environments
    writes action row t
    start_row(t, group) -------->  read action row t, step, write reward, flags and info to row t,
                                   and the observation to row t + 1
    finish_row(group)   <--------  done; only from here on may the sampler read these rows

Until `finish_row` returns, the rows that are being written belong to the cage. Other columns of these
rows belong to other cages all the time, so a cage never writes a row as a whole.

    checkpoint                     environments, in this process or others
    start_environment_states --->  each begins to copy what it is in
    environment_states       <---  copies
    load_environment_states  --->  each goes on from there
    env_method, render       <-->  one call, of all of them
    start_close, close       --->  closed, and their processes ended
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.system.processes.several import Handle
from parllel.types import Closeable, State


class PendingRow:
    """What a row that was started waits for; by itself nothing: it is done."""

    __slots__ = ()

    def done(self) -> bool:
        """Return at once whether it has ended, with an error or without."""
        return True

    def handles(self) -> Sequence[Handle]:
        """Return what is ready when `done` is True, if not earlier, for one wait of `AwaitedRows`.

        Connections and descriptors, as `multiprocessing.connection.wait` takes them. Empty if there are none,
        or it may be done now: then `done` is asked, again and again while it says False.
        """
        return ()


NOTHING = PendingRow()


class HeldEnvironments(Closeable, ABC):
    """Lifecycle, attributes and states of the environments of a cage, between rows."""

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of environments, which is the number of columns."""

    # Set by cages that know them: a property that every subclass had to override would break those of users.
    _env_factories: Sequence[EnvFactory] = ()

    @property
    def env_factories(self) -> list[EnvFactory]:
        """What made the environments, by column, to make more of the kind; empty if the cage does not say."""
        return list(self._env_factories)

    @property
    @abstractmethod
    def spaces(self) -> Spaces:
        """The spaces of each environment."""

    @property
    @abstractmethod
    def reset_automatically(self) -> bool:
        """Whether ended environments reset within the same step, or are not stepped until they are reset."""

    # Like `start_close`, a method of its own so that a sampler asks all cages before it waits for the first:
    # the processes then work side by side. In this process there is nothing to ask.
    def start_environment_states(self) -> None:
        """Ask other processes for what `environment_states` returns; call that next."""

    @abstractmethod
    def environment_states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, including the episode in progress.

        Call it between rows, and collect ended episodes before. For an environment that cannot save its
        state, `env` is None and `missing` names what has none; see `parllel.envs.states.env_state`.
        """

    @abstractmethod
    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Restore what `environment_states` returned; the next row continues from there.

        Environments without a state are marked in `needs_reset`. Their reset is seeded by their seed and
        `salt`, so that they do not repeat their first episode.

        Raises:
            ValueError: if the states are those of other environments.
        """

    @abstractmethod
    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment, or of one of its wrappers, and return the result."""

    def render(self) -> Any:
        """Return what `render` of each environment returns."""
        return self.env_method("render")

    # It never raises, so that all cages are asked, and end side by side; what goes wrong is raised by
    # `close`.
    def start_close(self) -> None:
        """Ask other processes to close their environments; call `close` next. It never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments and end their processes; may be called twice."""


class CageInterface(HeldEnvironments):
    """Environments, in this process or others, that write their results to columns of a batch.

    A method `start_*` starts work on a row, and `finish_row` waits until it is done. A cage has one or more
    groups of environments. Each is started and finished separately, so that one group can step while the
    agent acts for another.
    """

    @property
    def groups(self) -> list[slice]:
        """The columns of each group, counted from the cage's first. They cover 0 to `n` without gaps."""
        # One group is the common case; only a cage whose groups start apart overrides this.
        return [slice(0, self.n)]

    @property
    @abstractmethod
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]; valid when no row is started."""

    # Not abstract: cages of users that were written without it still work, and refuse later.
    def check_open(self) -> None:
        """Raise ClosedError after `close`, and in a forked copy of the process that the workers belong to.

        Samplers call it before they write anything to a batch.
        """

    @abstractmethod
    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to `columns` of `samples`, checking shapes and how memory is shared.

        Raises:
            TypeError, ValueError: if the buffer does not fit the spaces or the number of columns.
            RegistrationError: if the memory cannot be reached by the cage's process.
        """

    def use_batch(self, number: int) -> None:
        """Write to batch `number` of a buffer that holds several, from the next row on.

        The cage stays bound, so nothing is checked again or sent to workers. Samplers call this between
        batches, when everything that was started has been finished. For a cage that does not override it,
        they call `set_samples_buffer` instead.

        Raises:
            IndexError: if the buffer has no batch of that number.
            WrongStateError: if a row was started and not finished, or no buffer was set.
        """
        # Not abstract: samplers look whether a cage overrides it (`follows_batches`), so that cages of users
        # that were written for buffers of one batch still work, bound again for each.
        raise NotImplementedError(
            f"{type(self).__name__}: use_batch; call set_samples_buffer instead"
        )

    @abstractmethod
    def start_reset(self, t: int = 0, *, all_envs: bool = True, group: int = 0) -> None:
        """Start to reset a group's environments, all or those that need it, into observation row `t`."""

    @abstractmethod
    def start_row(self, t: int, group: int = 0) -> None:
        """Start to step a group's environments with the actions of row `t`.

        They write reward, flags and info to row `t`, and the observation to row `t + 1`.
        """

    @abstractmethod
    def start_random_row(self, t: int, group: int = 0) -> None:
        """Like `start_row`, with random actions from the action spaces, which are written to row `t`."""

    @property
    def environment_seeds(self) -> Sequence[Any] | None:
        """The seed of each environment, to be compared with those of other cages; None if it is not known."""
        return None

    @property
    def has_policy(self) -> bool:
        """Whether the cage has a policy, so that `start_rollout` can be called."""
        return self.worker_policy is not None

    @property
    def worker_policy(self) -> Any:
        """What the cage's policies were made by; None if it has none, or is not to be asked."""
        # A policy acts where the environments are, which is worth it only where these are in other processes.
        return None

    def start_rollout(self, T: int, group: int = 0) -> None:
        """Start to fill rows 0 to `T` - 1 of a group: in each, the policy acts and the environments step.

        The next call must be `finish_row`.

        Raises:
            WrongStateError: if the cage has no policy.
        """
        # Not NotImplementedError: the same call works once a cage of the right kind has a policy.
        raise WrongStateError(
            f"{self.spaces.name}: rollout: this {type(self).__name__} has no policy; set one by "
            "SynchronizedProcessCage.set_policy"
        )

    @abstractmethod
    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Start `counts[i]` random steps in environment i, for all `n` environments; they are no samples.

        No group may be started meanwhile; `finish_row()` without a group waits for all environments.
        """

    def row_done(self, group: int = 0) -> bool:
        """Return at once whether `finish_row` would no longer wait for an environment elsewhere.

        True as well if a worker has failed or died, which `finish_row` raises then. Environments that this
        process steps itself are stepped by `finish_row`, and not counted.

        Raises:
            WrongStateError: if nothing was started for the group.
        """
        return self.awaited(group).done()

    # Not abstract: cages of users that were written without it still work, one wait after the other.
    def awaited(self, group: int = 0) -> PendingRow:
        """Return what `finish_row` would wait for: whether it is done, and what to sleep on until then.

        Valid until `finish_row` or `close` is called. A cage that does not override it says that its rows are
        done, and its `finish_row` waits.

        Raises:
            WrongStateError: if nothing was started for the group.
        """
        return NOTHING

    # Apart from the start, so that one group's environments step while the agent acts for another.
    @abstractmethod
    def finish_row(self, group: int = 0) -> None:
        """Wait until what was started for the group is done; raise what an environment raised."""

    @abstractmethod
    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by column, then in time."""

    @abstractmethod
    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the true last observations of episodes that ended in rows since the last call.

        truncated_only: drop the others; the next call does not return them either.
        """
