"""What samplers know of a cage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import Samples
from parllel.cages.answers import FinalObservation
from parllel.cages.spaces import Spaces
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.types import State

CageT = TypeVar("CageT", bound="CageInterface")


class CageInterface(ABC):
    """Environments in their place, writing their results into columns of a batch.

    The row face serves samplers: `start_*` begins work on a row, `finish_row` waits for its end. In between
    the rows that are being written belong to the cage. A cage has one or more groups of environments; each is
    started and finished apart, so that one can step while the agent acts for another.
    """

    @property
    @abstractmethod
    def n(self) -> int:
        """How many environments this is, one column each."""

    @property
    def groups(self) -> list[slice]:
        """Columns of each group, counted from the cage's first: in order, without gaps, all `n` of them."""
        return [slice(0, self.n)]

    @property
    @abstractmethod
    def spaces(self) -> Spaces:
        """The spaces of each environment."""

    @property
    @abstractmethod
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]; right after any finish."""

    @property
    @abstractmethod
    def reset_automatically(self) -> bool:
        """Whether ended environments reset within the same step, or stay still until a reset."""

    @abstractmethod
    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to `columns` of `samples`, checking shapes and how memory is shared.

        Raises:
            TypeError, ValueError: if the buffer does not fit the spaces or the number of columns.
            RegistrationError: if the memory cannot be reached by the cage's process.
        """

    def use_batch(self, number: int) -> None:
        """Go over to batch `number` of a buffer that holds several: the rows that follow are its.

        The cage stays bound, so nothing is checked anew or sent to workers. A sampler calls it between
        batches, when all that was started has been finished. It binds a cage that does not override this
        anew instead.

        Raises:
            IndexError: if the buffer has no batch of that number.
            WrongStateError: if something is under way, or there is no buffer.
        """
        raise NotImplementedError(f"{type(self).__name__} is bound anew for each batch")

    @abstractmethod
    def start_reset(self, t: int = 0, *, everyone: bool = True, group: int = 0) -> None:
        """Begin to reset a group's environments (all, or those that need it) into observation row `t`."""

    @abstractmethod
    def start_row(self, t: int, group: int = 0) -> None:
        """Begin to step a group's environments with the actions of row `t`.

        Reward, flags and info go to row `t`, the observation to row `t + 1`.
        """

    @abstractmethod
    def start_random_row(self, t: int, group: int = 0) -> None:
        """Like `start_row`, with actions drawn by the environments' spaces, which are written too."""

    @property
    def has_policy(self) -> bool:
        """Whether `start_rollout` can be called: a policy acts where the environments are."""
        return False

    def start_rollout(self, T: int, group: int = 0) -> None:
        """Begin to fill rows 0 to `T` - 1 of a group: for each its policy acts, then its environments step.

        Nothing is to be done until `finish_row`. `WrongStateError` if there is no policy.
        """
        raise WrongStateError(
            f"{self.spaces.name}: rollout: this {type(self).__name__} has no policy; "
            "SynchronizedProcessCage.set_policy gives it one"
        )

    @abstractmethod
    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Begin `counts[i]` random steps of each of all `n` environments; they are no samples.

        Whatever the groups are, no other may be started; `finish_row()` waits for all of them.
        """

    @abstractmethod
    def finish_row(self, group: int = 0) -> None:
        """Wait for what was started for that group; raises what an environment raised."""

    @abstractmethod
    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by column, then in time."""

    @abstractmethod
    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the true last observations of episodes that ended in rows since the last call.

        truncated_only: leave those out that were not truncated, with no way to get them later.
        """

    def start_environment_states(self) -> None:
        """Begin, where another process does it, what `environment_states` waits for; call that next."""

    @abstractmethod
    def environment_states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, the episode in progress included, between rows.

        What has ended is to be collected before. Where an environment does not offer its state, `missing`
        says so and `env` is None; see `parllel.env_states.env_state`.
        """

    @abstractmethod
    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `environment_states` returned; rows may go on from there.

        Environments without a state are marked in `needs_reset`; a reset gives them a seed of their own that
        depends on `salt`.

        Raises:
            ValueError: if it belongs to other environments.
        """

    @abstractmethod
    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment, found through its wrappers."""

    @abstractmethod
    def render(self) -> Any:
        """Return what the environment's `render` returns."""

    def start_close(self) -> None:
        """Begin, where another process does it, what `close` waits for; call that next. It never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments and end what runs for them; may be called twice."""

    def __enter__(self: CageT) -> CageT:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
