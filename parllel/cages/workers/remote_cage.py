"""What the cages have in common whose environments live in other processes.

    cage                                               processes of the environments
    spaces: waited for once            <------------   sent when all are made
    env.name           -- "get", name ------------->   looked up through the wrappers
                       <-- value, or METHOD --------   METHOD for what can be called
    env.name(...)      -- "method", name, args ---->   called there, where the environment is
    env.name = value   -- "set", name, value ------>   set there
    collect_*          -- "collect" --------------->   what each process has of its columns
                       <-- by group ----------------   episodes and final observations, in one answer

The cage never holds an environment, so whatever it does not have itself is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.cages.cage_interface import CageInterface
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.batched_trajectories import sees_agent_info
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.rows import cage_part
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.stepping.trajectories import TrajInfoFactory, unpack
from parllel.cages.traj_info import TrajInfo
from parllel.types import Tree

# The answer where an attribute is a method, which cannot be sent: the cage makes a stand-in of it.
METHOD = "parllel: a method"


class RemoteCage(CageInterface):
    """Ask environments of other processes for their spaces, episodes, attributes and methods.

    Args:
        index: number of the first environment.
        env_factories, seeds: of each environment.
        traj_info: makes the record of one episode.
        reset_automatically: as the environments are made.
    """

    _name: str  # what messages call the cage
    _asks_one = False  # whether it is one environment, whose values stand for themselves

    def __init__(
        self,
        index: int,
        *,
        env_factories: Sequence[EnvFactory],
        seeds: Sequence[Any],
        traj_info: TrajInfoFactory,
        reset_automatically: bool,
    ) -> None:
        self._index = index
        self._env_factories, self._seeds = env_factories, list(seeds)
        self._traj_info = traj_info
        # Only if it does is agent_info bound, and so introduced to the workers.
        self._sees_agent_info = sees_agent_info(traj_info)
        self._completed: list[TrajInfo] = []
        self._final: list[FinalObservation] = []
        self._reset_automatically = reset_automatically
        # Kept up to date by the subclass, which may replace it by memory of all its processes.
        self._needs_reset: NDArray[np.bool_] = np.ones(len(self._seeds), bool)
        self._spaces: Spaces | None = None
        self._spaces_error: AttributeError | None = None

    @abstractmethod
    def _await_spaces(self) -> Spaces:
        """Wait until all environments are made, and return the spaces of each."""

    @abstractmethod
    def _ask(self, op: str, *args: Any) -> list[Any]:
        """Have each environment do something while nothing else is; return the answers by column."""

    @abstractmethod
    def _fetch(self, method: str, truncated_only: bool) -> Sequence[Any]:
        """Return of each process, by group, the packed episodes and final observations since the last call.

        Empty if there are none. After a failure what the processes could still hand over, once.
        """

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

    @property
    def environment_seeds(self) -> list[Any]:
        """The seed of each environment, as it was given; None if it was drawn."""
        return list(self._seeds)

    def _part_of(self, samples: Samples, columns: slice) -> tuple[Tree, dict[str, Tree]]:
        """Return what `cage_part` does; ValueError unless there is one column for each environment."""
        # No more than the cage reads or writes: each field that is sent has to be shareable.
        action, fields = cage_part(samples, agent_info=self._sees_agent_info)
        # Checked here, as each process sees its own share of the columns only.
        B = fields["reward"].shape[1]
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != self.n:
            raise ValueError(
                f"{self._name}: columns: expected {self.n} of the {B} that there are, got {columns}"
            )
        return action, fields

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by column, then in time.

        After a failure, return those that the processes could still hand over; the same goes for final
        observations.
        """
        self._collect("collect_completed_trajs")
        completed, self._completed = self._completed, []
        return completed

    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the last observations of episodes that ended in rows since the last call."""
        self._collect("collect_final_observations", truncated_only)
        final, self._final = self._final, []
        return [one for one in final if one.truncated] if truncated_only else final

    def _collect(self, method: str, truncated_only: bool = False) -> None:
        # Each process reports by group; by group and then by process is the order of the columns.
        for group in zip(*self._fetch(method, truncated_only), strict=True):
            for completed, final in group:
                # Added to what is there: the last fetch may have been for the other of the two methods.
                self._completed += unpack(self._traj_info, completed)
                self._final += [FinalObservation(*one) for one in final]

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


def by_column(parts: Sequence[Sequence[Sequence[Any]]]) -> list[Any]:
    """Return what each process returned by group, in the order of the columns."""
    # Groups are adjacent columns, and so are the shares of a group, in the order of the processes.
    return [value for group in zip(*parts, strict=True) for share in group for value in share]
