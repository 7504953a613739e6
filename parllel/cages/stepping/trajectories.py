"""Statistics of episodes in progress, and the episodes that have ended.

`BatchedTrajectories` and `PerStepTrajectories` lead to the same numbers, bit for bit; `follow` chooses.
"""

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
# Finished TrajInfos; or of each its length, return, discounted return and weight, four float64.
Packed: TypeAlias = list[TrajInfo] | bytes
# (environment, terminated, truncated) of an episode that ended in a row.
End: TypeAlias = tuple[int, bool, bool]


class Trajectories(ABC):
    """Follow the episodes of n environments.

    `add_row` takes a row of all environments; `step`, and `end` where an episode ends, take a step of one.
    `begin` drops the episode in progress. An environment that has ended and waits may get rewards in rows;
    they are dropped when its next episode begins.

    Attributes:
        per_step: whether each step of a row is to be passed to `step` as well, before `add_row`.
        sees_agent_info: whether `see_agent_info` is to be called before each `step`.
    """

    per_step: bool
    sees_agent_info = False

    def __init__(self, make: TrajInfoFactory, n: int) -> None:
        self._make = make
        self._n = n
        self._completed: list[tuple[int, Any]] = []

    @abstractmethod
    def begin(self, i: int) -> None:
        """Start a new episode of the i-th environment; one in progress goes unreported."""

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
        """Take in one step; arguments as for `TrajInfo.step`."""

    def see_agent_info(self, i: int, agent_info: Tree) -> None:
        """Take in the agent_info of the next step."""

    @abstractmethod
    def end(self, i: int) -> None:
        """Report the episode of the i-th environment and start the next."""

    @abstractmethod
    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """Take in a row of n rewards and the episodes that ended with it.

        Returns the rewards [n] as float64, to be read before the next row. Where a reward is not a number it
        raises, and nothing has been taken in.
        """

    @abstractmethod
    def add_stack(self, rewards: NDArray[Any], ended: Sequence[int]) -> None:
        """Take in a row of n rewards, one array, and the environments whose episodes ended with it."""

    @abstractmethod
    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """Take in what there is of a row that failed: rewards are None where there was no step."""

    def take(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by environment, then in time."""
        return unpack(self._make, self.take_packed())

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Return what `unpack` makes the same of, here or in another process.

        at_once: do not load the compiler for it, as this process is about to end.
        """
        completed, self._completed = self._completed, []
        return [traj for _, traj in sorted(completed, key=lambda pair: pair[0])]

    def count(self) -> int:
        """Return how many episodes `take` would return."""
        return len(self._completed)

    def forget_after(self, count: int) -> None:
        """Drop all but the first `count` episodes that `take` would return."""
        del self._completed[count:]

    def prepare(self) -> None:
        """Do ahead of time what `take` would have to do."""

    @abstractmethod
    def state(self, i: int) -> State:
        """Return what a checkpoint keeps of the episode of the i-th environment that is in progress."""

    @abstractmethod
    def load_state(self, i: int, state: State) -> None:
        """Take back what `state` returned."""

    @property
    def has_completed(self) -> bool:
        """Whether `take` would return anything."""
        return bool(self._completed)


def unpack(make: TrajInfoFactory, packed: Packed) -> list[TrajInfo]:
    """Return the TrajInfos of finished episodes."""
    if isinstance(packed, list):
        return packed
    trajs = []
    for numbers in np.frombuffer(packed).reshape(-1, 4).tolist():
        traj = make()
        length, traj.return_, traj.discounted_return, traj._weight = numbers
        traj.length = int(length)
        trajs.append(traj)
    return trajs


def is_number(reward: Any) -> bool:
    """Return whether a reward can be added."""
    try:
        struct.pack("d", reward)
    except Exception:
        return False
    return True
