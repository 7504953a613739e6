"""Statistics of episodes in progress, and the episodes that have ended.

Two ways lead to the same numbers, bit for bit. Where the factory makes plain `TrajInfo`s, or a subclass that
leaves `step` alone, rewards pile up row by row and are added up when somebody asks. A subclass with a
`step` of its own has it called at every step.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.cages.traj_info import TrajInfo
from parllel.env_states import freeze, thaw
from parllel.types import State, Tree

TrajInfoFactory: TypeAlias = Callable[[], TrajInfo]
# Finished TrajInfos; or of each its length, return, discounted return and weight, four float64.
Packed: TypeAlias = list[TrajInfo] | bytes
# (environment, terminated, truncated) of an episode that ended in a row.
End: TypeAlias = tuple[int, bool, bool]

_PILED_REWARDS = 2**15  # 256 KiB; then they are added up
_MIN_ROWS = 64
_COMPILED = "parllel.cages.compiled"


class Trajectories(ABC):
    """Follow the episodes of n environments.

    A row is told as a whole, `add_row`; one environment by itself as `step` and then perhaps `end`.
    `begin` forgets the episode in progress. An environment that has ended and waits may get rewards in
    rows, which count for nothing once it begins anew.

    Attributes:
        per_step: whether each step of a row has to be told by `step` as well, before `add_row`.
        sees_agent_info: whether `see_agent_info` is to be called before that.
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
        """Take in what the agent said of the next step."""

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
    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """Take in what there is of a row that failed: rewards are None where there was no step."""

    def take(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by environment, then in time."""
        return unpack(self._make, self.take_packed())

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Return what `unpack` makes the same of, here or in another process.

        at_once: as this process ends, so it is not worth to wait for the compiler.
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


def follow(make: TrajInfoFactory, n: int) -> Trajectories:
    """Return trajectories of n environments, in the faster way that what `make` makes allows."""
    example = made_by(make)
    per_step = _has_own(example, "step") or _has_own(example, "see_agent_info")
    return (PerStepTrajectories if per_step else BatchedTrajectories)(make, n, example)


def sees_agent_info(make: TrajInfoFactory) -> bool:
    """Return whether what `make` makes wants to know what the agent says of each step."""
    return _has_own(made_by(make), "see_agent_info")


def made_by(make: TrajInfoFactory) -> TrajInfo:
    """Return what the factory makes; TypeError unless it is one and makes a TrajInfo."""
    if not callable(make):
        raise TypeError(
            f"traj_info: expected a class or function that makes a TrajInfo, got {make!r}"
        )
    traj = make()
    if not isinstance(traj, TrajInfo):
        raise TypeError(f"traj_info: expected it to make a TrajInfo, got {traj!r}")
    return traj


def _has_own(traj: TrajInfo, method: str) -> bool:
    own = getattr(type(traj), method, None) is not getattr(TrajInfo, method)
    return own or method in vars(traj)


class PerStepTrajectories(Trajectories):
    """Call `TrajInfo.step` at every step.

    Args:
        example: what `make` made, taken for the first environment.
    """

    per_step = True

    def __init__(self, make: TrajInfoFactory, n: int, example: TrajInfo) -> None:
        super().__init__(make, n)
        self._trajs = [example, *(make() for _ in range(n - 1))]
        self.sees_agent_info = _has_own(example, "see_agent_info")

    def see_agent_info(self, i: int, agent_info: Tree) -> None:
        """Hand it on."""
        self._trajs[i].see_agent_info(agent_info)

    def begin(self, i: int) -> None:
        """Make a new TrajInfo."""
        self._trajs[i] = self._make()

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
        """Hand it on."""
        self._trajs[i].step(observation, action, reward, terminated, truncated, info)

    def end(self, i: int) -> None:
        """Report the TrajInfo and make a new one."""
        self._completed.append((i, self._trajs[i]))
        self._trajs[i] = self._make()

    def state(self, i: int) -> State:
        """Return class and state of its TrajInfo; TypeError for what no file can hold."""
        traj = self._trajs[i]
        name = type(traj).__qualname__
        return {"class": name, "traj": freeze(traj.state(), f"{name}.state()")}

    def load_state(self, i: int, state: State) -> None:
        """Load it into a new TrajInfo; ValueError if it is that of another class."""
        traj = self._trajs[i] = self._make()
        expected, came = type(traj).__qualname__, state.get("class", "of plain sums")
        if came != expected:
            raise ValueError(f"TrajInfo: expected the state of class {expected}, got {came}")
        traj.load_state(thaw(state["traj"]))

    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """End episodes; the steps have been told already."""
        row = np.array([float(reward) for reward in rewards])
        for i, _, _ in ended:
            self.end(i)
        return row

    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """End episodes; the steps have been told already."""
        for i, _, _ in ended:
            self.end(i)


class BatchedTrajectories(Trajectories):
    """Pile up rows of rewards, and add them up in one pass.

    Args:
        example: what `make` made: its numbers are those that every episode starts from.
    """

    per_step = False

    def __init__(self, make: TrajInfoFactory, n: int, example: TrajInfo) -> None:
        super().__init__(make, n)
        self._discount = float(example._discount)
        self._start = np.array(_numbers(example), np.float64)
        self._sums = np.tile(self._start, (n, 1))  # as of before the pile
        self._rewards = np.zeros((max(_MIN_ROWS, _PILED_REWARDS // n), n))
        self._memory: Any = self._rewards  # what struct takes for a buffer and numpy's types do not
        # Numbers of all kinds to float64, at a third of what numpy takes for a list.
        self._pack = struct.Struct(f"{n}d").pack_into
        self._piled = 0
        # Row, environment, 1 for an end or 0 for a beginning, and so on: what follows starts with that row.
        self._events: list[int] = []
        # Environment and sums of each episode that ended, in the order of time, in parts.
        self._reported: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._n_ended = 0

    def begin(self, i: int) -> None:
        """Note the row."""
        if self._piled:
            self._events += (self._piled, i, 0)
        else:
            self._sums[i] = self._start

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
        """Add it to what there is, the pile included."""
        self._add_step(i, reward)

    def _add_step(self, i: int, reward: float) -> None:
        self._add_up()
        length, return_, discounted, weight = self._sums[i].tolist()
        self._sums[i] = (
            length + 1,
            return_ + reward,
            discounted + weight * reward,
            weight * self._discount,
        )

    def end(self, i: int) -> None:
        """Report the sums."""
        self._add_up()
        self._reported.append((np.array([i]), self._sums[i : i + 1].copy()))
        self._sums[i] = self._start

    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """Put a row on the pile."""
        k = self._piled
        self._pack(self._memory, k * self._n * 8, *rewards)
        self._piled = k + 1
        if ended:
            for i, _, _ in ended:
                self._events += (k + 1, i, 1)
            self._n_ended += len(ended)
        row: NDArray[np.float64] = self._rewards[k]
        if self._piled == len(self._rewards):
            self._add_up()
        return row

    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """Take in the steps one by one."""
        for i, reward in enumerate(rewards):
            if is_number(reward):
                self._add_step(i, float(reward))
        for i, _, _ in ended:
            self.end(i)

    def state(self, i: int) -> State:
        """Add up, and return the sums."""
        self._add_up()
        return {"sums": self._sums[i].tolist()}

    def load_state(self, i: int, state: State) -> None:
        """Set the sums; ValueError if they are not four numbers."""
        self._add_up()
        if "sums" not in state:
            raise ValueError(
                f"TrajInfo: expected the state of plain sums, got class {state.get('class')}"
            )
        sums = np.array(state["sums"], np.float64)
        if sums.shape != self._start.shape:
            raise ValueError(f"TrajInfo: state: expected 4 sums, got {state['sums']}")
        self._sums[i] = sums

    def prepare(self) -> None:
        """Add up, unless the compiler had to be loaded for it."""
        # That takes long, and a worker does not hear meanwhile that it is to close.
        if self._n == 1 or _COMPILED in sys.modules:
            self._add_up()

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Add up, and return the numbers of each episode."""
        self._add_up(at_once=at_once)
        parts, self._reported = self._reported, []
        if not parts:
            return b""
        envs = np.concatenate([envs for envs, _ in parts])
        numbers: NDArray[np.float64] = np.concatenate([numbers for _, numbers in parts])
        return numbers[np.argsort(envs, kind="stable")].tobytes()

    def count(self) -> int:
        """Return how many episodes `take` would return."""
        return sum(len(envs) for envs, _ in self._reported) + self._n_ended

    def forget_after(self, count: int) -> None:
        """Drop all but the first `count` episodes that `take` would return."""
        self._add_up()
        kept = []
        for envs, numbers in self._reported:
            kept.append((envs[:count], numbers[:count]))
            count -= len(envs[:count])
        self._reported = kept

    @property
    def has_completed(self) -> bool:
        """Whether `take` would return anything."""
        return self.count() > 0

    def _add_up(self, *, at_once: bool = False) -> None:
        if not self._piled:
            return
        add = add_up
        if self._n > 1 and not (
            at_once and _COMPILED not in sys.modules
        ):  # one environment is not worth the third of a second of the compiler
            from parllel.cages import compiled

            add = compiled.add_up
        events = np.array(self._events, np.int64).reshape(-1, 3)
        ended = np.empty((len(events), 4))
        add(self._rewards, self._piled, events, self._start, self._discount, self._sums, ended)
        ends = events[:, 2] == 1
        self._reported.append((events[ends, 1], ended[ends]))
        self._events, self._n_ended, self._piled = [], 0, 0


def add_up(
    rewards: NDArray[np.float64],
    rows: int,
    events: NDArray[np.int64],
    start: NDArray[np.float64],
    discount: float,
    sums: NDArray[np.float64],
    out_ended: NDArray[np.float64],
) -> None:
    """Add rewards to the sums of each episode in the order of time, as `TrajInfo.step` does.

    rewards: [at least rows, n].  events: [e, 3] of row, environment, and whether an episode ends in
    front of that row or one begins whatever was before; in the order of time.  start: [4], what
    length, return, discounted return and weight of an episode are at first.  sums: [n, 4], those
    of the episodes in progress, which are carried on.  out_ended: [e, 4], where an episode ends.
    """
    columns = rewards[:rows].T.tolist()
    reached = [0] * len(columns)

    def go_on(i: int, stop: int) -> None:
        length, return_, discounted, weight = sums[i].tolist()
        for reward in columns[i][reached[i] : stop]:
            length += 1.0
            return_ += reward
            discounted += weight * reward
            weight *= discount
        sums[i] = length, return_, discounted, weight

    for e, (row, i, ends) in enumerate(events.tolist()):
        if ends:
            go_on(i, row)
            out_ended[e] = sums[i]
        sums[i] = start
        reached[i] = row
    for i in range(len(columns)):
        go_on(i, rows)


def _numbers(traj: TrajInfo) -> tuple[float, float, float, float]:
    return traj.length, traj.return_, traj.discounted_return, traj._weight


def is_number(reward: Any) -> bool:
    """Return whether a reward can be added."""
    try:
        struct.pack("d", reward)
    except Exception:
        return False
    return True
