"""What may be asked of the environments of a cage while none of them is being stepped.

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

from parllel.cages.spaces import Spaces
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.types import Closing, State


class HeldEnvironments(Closing, ABC):
    """Environments between rows: what they are, what they can do, their states, and their end."""

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
