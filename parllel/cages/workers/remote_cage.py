"""What the cages have in common whose environments live in other processes.

    cage                                               processes of the environments
    spaces: waited for once            <------------   sent when all are made
    env.name           -- "get", name ------------->   looked up through the wrappers
                       <-- value, or METHOD --------   METHOD for what can be called
    env.name(...)      -- "method", name, args ---->   called there, where the environment is
    env.name = value   -- "set", name, value ------>   set there

The cage never holds an environment, so whatever it does not have itself is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.cage_interface import CageInterface
from parllel.cages.spaces import Spaces

# The answer where an attribute is a method, which cannot be sent: the cage makes a stand-in of it.
METHOD = "parllel: a method"


class RemoteCage(CageInterface):
    """Ask environments of other processes for their spaces, attributes and methods.

    Args:
        index: number of the first environment.
        await_spaces: waits until all environments are made, and returns the spaces of each.
        reset_automatically: as the environments are made.
        needs_reset: [n], in memory that the cage keeps up to date.
    """

    _asks_one = False  # whether it is one environment, whose values stand for themselves

    def __init__(
        self,
        index: int,
        await_spaces: Callable[[], Spaces],
        *,
        reset_automatically: bool,
        needs_reset: NDArray[np.bool_],
    ) -> None:
        self._index = index
        self._await_spaces = await_spaces
        self._reset_automatically = reset_automatically
        self._needs_reset = needs_reset
        self._spaces: Spaces | None = None
        self._spaces_error: AttributeError | None = None

    @abstractmethod
    def _ask(self, op: str, *args: Any) -> list[Any]:
        """Have each environment do something while nothing else is; return the answers by column."""

    @property
    def n(self) -> int:
        """How many environments there are."""
        return len(self._needs_reset)

    @property
    def spaces(self) -> Spaces:
        """The spaces of each environment; waits until all are made."""
        # Once: they never change, and are needed for each message that names the environment.
        if self._spaces is None:
            try:
                self._spaces = self._await_spaces()
            except AttributeError as error:  # Python goes on to __getattr__ with it
                self._spaces_error = error
                raise
        return self._spaces

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]."""
        return self._needs_reset  # not a copy: it follows what the environments do

    @property
    def reset_automatically(self) -> bool:
        """The argument of that name."""
        return self._reset_automatically

    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each environment, found through its wrappers; arguments are pickled."""
        values = self._ask("method", name, args, kwargs)
        return values[0] if self._asks_one else values

    def __getattr__(self, name: str) -> Any:
        # Called only where ordinary lookup failed. A private name is never the environment's.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if name == "spaces" and self._spaces_error is not None:
            raise self._spaces_error
        values = self._ask("get", name)
        # By type first, as values may be arrays, whose comparison is an array.
        if isinstance(values[0], str) and values[0] == METHOD:
            return partial(self.env_method, name)
        return values[0] if self._asks_one else values

    def __setattr__(self, name: str, value: Any) -> None:
        # What the class defines is the cage's own, also where an environment has the same name.
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            self._ask("set", name, value)
