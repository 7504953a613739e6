"""Episodes in progress and ended episodes of several environments.

`BatchedTrajectories` and `PerStepTrajectories` give the same numbers, bit for bit; `follow` chooses one.
"""

# process of the environments   begin, step, end, add_row ...   in row loops, one call at a time
#                               take_packed                     between rows, as answer to "collect"
# process of the sampler        unpack                          makes the TrajInfos again
# Without workers both are one process, and `take` does both steps.

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.cages.traj_info import TrajInfo
from parllel.types import State, Tree

TrajInfoFactory: TypeAlias = Callable[[], TrajInfo]
# Ended TrajInfos; or four float64 for each: length, return, discounted return and weight.
Packed: TypeAlias = list[TrajInfo] | bytes
# (environment, terminated, truncated) of an episode that ended in a row.
End: TypeAlias = tuple[int, bool, bool]
AddRow: TypeAlias = Callable[[Sequence[Any], Sequence[End]], NDArray[np.float64]]


class Trajectories(ABC):
    """Follows the episodes of n environments.

    `add_row` adds a row of all environments; `step` adds a step of one environment, and `end` ends its
    episode. `begin` drops the episode in progress. An environment that waits for a reset may get rewards in
    rows; they are dropped when its next episode begins.

    Attributes:
        per_step: whether each step of a row must also be passed to `step`, before `add_row`.
        sees_agent_info: whether `see_agent_info` must be called before each `step`.
    """

    per_step: bool
    sees_agent_info = False

    def __init__(self, make: TrajInfoFactory, n: int) -> None:
        self._make = make
        self._n = n
        self._completed: list[tuple[int, Any]] = []

    @abstractmethod
    def begin(self, i: int) -> None:
        """Begin a new episode of environment i, dropping the one in progress."""

    @abstractmethod
    def step(
        self,
        i: int,
        observation: Tree,
        action: Tree,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        """Add one step; arguments as for `TrajInfo.step`."""

    def see_agent_info(self, i: int, agent_info: Tree) -> None:
        """Receive the agent_info of the next step."""

    @abstractmethod
    def end(self, i: int) -> None:
        """Report the episode of environment i and begin the next."""

    @abstractmethod
    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """Add a row of n rewards and end the episodes that ended with it.

        Returns the rewards [n] as float64, valid until the next row. Raises an error if a reward is
        not a number; nothing is added then.
        """

    def bound_add_row(self) -> AddRow:
        """Return `add_row`, or a faster function with the same effects."""
        return self.add_row

    @abstractmethod
    def add_stack(self, rewards: NDArray[Any], ended: Sequence[int]) -> None:
        """Add an array of n rewards, and end the episodes of the environments in `ended`."""

    @abstractmethod
    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """Add the valid part of a failed row. Rewards are None where no step was taken."""

    def take(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, ordered by environment, then by time."""
        return unpack(self._make, self.take_packed())

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Return the ended episodes in a form that `unpack` can convert back, even in another process.

        at_once: do not load the compiler, because this process is about to end.
        """
        # The sort is stable: episodes of one environment stay in the order of time.
        completed, self._completed = self._completed, []
        return [traj for _, traj in sorted(completed, key=lambda pair: pair[0])]

    def count(self) -> int:
        """Return the number of episodes that `take` would return."""
        return len(self._completed)

    def forget_after(self, count: int) -> None:
        """Drop all but the first `count` episodes that `take` would return."""
        # In the order of time, unlike `take`: `decorrelate` drops what has ended
        # since its own `count`.
        del self._completed[count:]

    def prepare(self) -> None:
        """Do part of the work of `take` ahead of time."""

    @abstractmethod
    def state(self, i: int) -> State:
        """Return the state of environment i's episode in progress, for a checkpoint."""

    @abstractmethod
    def load_state(self, i: int, state: State) -> None:
        """Restore a state returned by `state`."""

    @property
    def has_completed(self) -> bool:
        """Whether `take` would return anything."""
        return bool(self._completed)


def unpack(make: TrajInfoFactory, packed: Packed) -> list[TrajInfo]:
    """Return the TrajInfos of ended episodes from `take_packed`."""
    # Objects of PerStepTrajectories, or the empty list of a group without
    # environments in a process.
    if isinstance(packed, list):
        return packed
    # In the byte order of this process: both ends are on one machine.
    return trajs_of(make, np.frombuffer(packed).reshape(-1, 4))


def trajs_of(make: TrajInfoFactory, numbers: NDArray[np.float64]) -> list[TrajInfo]:
    """Return TrajInfos with these numbers [e, 4]: length, return, discounted return and weight."""
    trajs = []
    for length, return_, discounted, weight in numbers.tolist():
        traj = make()
        traj.length, traj.return_ = int(length), return_
        traj.discounted_return, traj._weight = discounted, weight
        trajs.append(traj)
    return trajs


def is_number(reward: Any) -> bool:
    """Return whether a reward is a number that can be added."""
    try:
        # The conversion of `BatchedTrajectories.add_row`: what it refuses must not pass here.
        struct.pack("d", reward)
    except Exception:
        return False
    return True
