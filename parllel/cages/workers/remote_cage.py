"""Base class of cages whose environments run in other processes.

    cage                                               processes of the environments
    spaces: awaited once               <------------   sent when all are made
    env.name           -- "get", name ------------->   looked up through the wrappers
                       <-- value, or METHOD --------   METHOD for callables
    env.name(...)      -- "method", name, args ---->   called in the environment's process
    env.name = value   -- "set", name, value ------>   set there
    collect_*          -- "collect" --------------->   results of each process for its columns
                       <-- by group ----------------   episodes and final observations, in one answer

The cage holds no environment, so attributes that it lacks are requested from the processes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.cages.argument_checks import check_calls, check_values
from parllel.cages.cage_interface import CageInterface
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.batched_trajectories import sees_agent_info
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.rows import cage_part
from parllel.cages.stepping.step_result import Crash, FinalObservation
from parllel.cages.stepping.trajectories import TrajInfoFactory, unpack
from parllel.cages.traj_info import TrajInfo
from parllel.cages.workers.restarts import Restarts
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import Tree

# Sent in place of a method, which cannot be pickled; the cage returns a proxy that calls it.
METHOD = "parllel: a method"


class RemoteCage(CageInterface):
    """Base class of cages whose environments run in other processes.

    Args:
        index: number of the first environment.
        env_factories, seeds: the factory and the seed of each environment.
        traj_info: function that makes the record of one episode.
        reset_automatically: the setting of the environments.
        restarts: budget of restarts of dead processes, or None.
        infos: whether the cage keeps infos, which excludes restarts.
    """

    _name: str  # name of the cage, for messages
    _asks_one = False  # whether users see the values of a single environment instead of lists

    def __repr__(self) -> str:
        # Without waiting until the worker has made its environments.
        name = "environments" if self._spaces is None else self._spaces.name
        return f"{type(self).__name__}({self.n} x {name})"

    def __init__(
        self,
        index: int,
        *,
        env_factories: Sequence[EnvFactory],
        seeds: Sequence[Any],
        traj_info: TrajInfoFactory,
        reset_automatically: bool,
        restarts: RestartBudget | None,
        infos: bool,
    ) -> None:
        self._index = index
        self._env_factories, self._seeds = env_factories, list(seeds)
        # Those of the current processes; a restart replaces them.
        self._seeds_now = list(seeds)
        self._restarts: Restarts | None = None
        if restarts is not None:
            if infos:
                raise ValueError(
                    "restarts: expected None with infos=True, as no row holds the loss"
                )
            self._restarts = Restarts(restarts, self._seeds_now, index)
        self._traj_info = traj_info
        # agent_info is bound, and introduced to the workers, only if a TrajInfo uses it.
        self._sees_agent_info = sees_agent_info(traj_info)
        self._completed: list[TrajInfo] = []
        self._final: list[FinalObservation] = []
        self._reset_automatically = reset_automatically
        # Updated by the subclass, which may replace it by shared memory.
        self._needs_reset: NDArray[np.bool_] = np.ones(len(self._seeds), bool)
        self._spaces: Spaces | None = None
        self._spaces_error: AttributeError | None = None

    @abstractmethod
    def _await_spaces(self) -> Spaces:
        """Wait until all environments are made; return the spaces of each."""

    @abstractmethod
    def _ask(self, op: str, *args: Any) -> list[Any]:
        """Send a request to all processes while the cage is idle; return the answers by column."""

    @abstractmethod
    def _fetch(self, method: str, truncated_only: bool) -> Sequence[Any]:
        """Return each process's packed episodes and final observations since the last call, by group.

        Empty if there are none. After a failure, returns once what the processes could still deliver.
        """

    @property
    def n(self) -> int:
        """Number of environments."""
        return len(self._needs_reset)

    @property
    def spaces(self) -> Spaces:
        """The spaces of each environment; waits until all are made."""
        # Cached: they never change, and messages need the environment's name.
        if self._spaces is None:
            try:
                self._spaces = self._await_spaces()
            except AttributeError as error:  # Python would call __getattr__ and hide it
                self._spaces_error = error
                raise
        return self._spaces

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [n]."""
        return self._needs_reset  # not a copy: the array is updated in place

    @property
    def reset_automatically(self) -> bool:
        """The argument `reset_automatically`."""
        return self._reset_automatically

    @property
    def environment_seeds(self) -> list[Any]:
        """The given seed of each environment; None if it was drawn."""
        return list(self._seeds)

    def _part_of(self, samples: Samples, columns: slice) -> tuple[Tree, dict[str, Tree]]:
        """Return the result of `cage_part`. Raises ValueError unless there is one column per environment."""
        # Only the fields that the cage reads or writes, as every field that is sent must be shareable.
        action, fields = cage_part(samples, agent_info=self._sees_agent_info)
        # Checked here, as each process sees only its own share of the columns.
        B = fields["reward"].shape[1]
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != self.n:
            raise ValueError(
                f"{self._name}: columns: expected {self.n} of the {B} columns in the batch, got "
                f"{columns}"
            )
        return action, fields

    @property
    def restarts(self) -> int | None:
        """Number of restarts of dead processes so far; None for a cage that restarts none."""
        return None if self._restarts is None else self._restarts.count

    @property
    def last_crash(self) -> str:
        """Why the last restart was necessary; "" without restarts."""
        return "" if self._restarts is None else self._restarts.last

    def collect_crashes(self) -> list[Crash]:
        """Return the environments whose process was restarted since the last call."""
        return [] if self._restarts is None else self._restarts.take()

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, ordered by column, then by time.

        After a failure, this returns the episodes that the processes could still deliver. The same
        holds for final observations.
        """
        self._collect("collect_completed_trajs")
        completed, self._completed = self._completed, []
        return completed

    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the final observations of the episodes that have ended since the previous call."""
        self._collect("collect_final_observations", truncated_only)
        final, self._final = self._final, []
        return [one for one in final if one.truncated] if truncated_only else final

    def _collect(self, method: str, truncated_only: bool = False) -> None:
        # Each process reports by group. Columns are ordered by group, then by process.
        for group in zip(*self._fetch(method, truncated_only), strict=True):
            for completed, final in group:
                # Appended: an earlier fetch may have been for the other method.
                self._completed += unpack(self._traj_info, completed)
                self._final += [FinalObservation(*one) for one in final]

    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each environment, found through its wrappers. Arguments are pickled."""
        values = self._ask("method", name, args, kwargs)
        return values[0] if self._asks_one else values

    def env_apply(
        self,
        function: Callable[..., Any],
        *,
        which: Sequence[int] | None = None,
        arguments: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Call a function with each environment or some of them; it and the results are pickled."""
        numbers, calls = check_calls(which, arguments, self.n, self._name)
        results = self._ask("apply", function, calls)
        return [results[i] for i in numbers]

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute to a separate value in each environment."""
        self._ask("set_each", name, check_values(values, self.n, self._name, name))

    def __getattr__(self, name: str) -> Any:
        # Called only when ordinary lookup has failed. A private name never belongs to the environment.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if name == "spaces" and self._spaces_error is not None:
            raise self._spaces_error
        values = self._ask("get", name)
        # The type first: comparing an array with METHOD would give an array.
        if isinstance(values[0], str) and values[0] == METHOD:
            return partial(self.env_method, name)
        return values[0] if self._asks_one else values

    def __setattr__(self, name: str, value: Any) -> None:
        # Names of the class are the cage's own, even if an environment has the same name.
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            self._ask("set", name, value)


def by_column(parts: Sequence[Sequence[Sequence[Any]]]) -> list[Any]:
    """Flatten the results of all processes and their groups into the order of the columns."""
    # Columns are ordered by group, and within a group by process.
    return [value for group in zip(*parts, strict=True) for share in group for value in share]
