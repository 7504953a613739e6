"""Episode statistics summed over many rows at a time, and the choice between this and per-step calls.

If the factory makes plain `TrajInfo`s, or a subclass that does not override `step`, rows of rewards are kept
and summed when the episodes are collected, in a compiled loop if there are several environments.

    add_row     rewards of row k -> kept[k]        (k + 1, i, 1): the episode of i ended after row k
    begin       nothing                            (k, i, 0): an episode of i begins with row k
    _add_up     rows and events -> sums of the episodes in progress and of each that ended
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.stepping.per_step_trajectories import PerStepTrajectories
from parllel.cages.stepping.trajectories import (
    AddRow,
    End,
    Packed,
    Trajectories,
    TrajInfoFactory,
    is_number,
    trajs_of,
)
from parllel.cages.traj_info import TrajInfo
from parllel.types import State, Tree, overrides

# 256 KiB; when full, rows are summed, as memory must not grow if episodes are never collected.
_KEPT_REWARDS = 2**15
_MIN_ROWS = 64  # for any number of environments, so that the call to add up is rare
_COMPILED = "parllel.cages.stepping.compiled"


class BatchedTrajectories(Trajectories):
    """Stores rows of rewards and computes the episodes' statistics from them in one pass.

    Args:
        example: a TrajInfo made by `make`. Every episode starts from its numbers.
    """

    per_step = False

    def __init__(self, make: TrajInfoFactory, n: int, example: TrajInfo) -> None:
        super().__init__(make, n)
        self._discount = float(example._discount)
        self._start = np.array(_numbers(example), np.float64)
        self._sums = np.tile(self._start, (n, 1))  # without the kept rows
        self._rewards = np.zeros((max(_MIN_ROWS, _KEPT_REWARDS // n), n))
        self._memory: Any = self._rewards  # typed as Any for struct, which takes it as a buffer
        # Converts numbers of all kinds to float64 in a third of numpy's time for a list.
        self._pack = struct.Struct(f"{n}d").pack_into
        self._n_kept = 0
        # Triples of row, environment, and 1 for an end or 0 for a beginning; the next episode starts with
        # that row. One flat list of ints, from which numpy makes an array in less than half the time.
        self._events: list[int] = []
        # Environment and sums of each ended episode, in parts, in the order of time.
        self._reported: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._n_ended = 0
        # Kept, as an import statement takes as long as adding up a batch.
        self._compiled: Callable[..., None] | None = None

    def begin(self, i: int) -> None:
        """Record the beginning of an episode."""
        # Kept rows may hold rewards of the dropped episode; the sums restart only after those.
        if self._n_kept:
            self._events += (self._n_kept, i, 0)
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
        """Add a step to the sums, after adding the stored rows."""
        self._add_step(i, reward)

    def _add_step(self, i: int, reward: float) -> None:
        # Earlier steps first: floats are added in the order of time, so that all paths give the same bits.
        self._add_up()
        length, return_, discounted, weight = self._sums[i].tolist()
        self._sums[i] = (
            length + 1,
            return_ + reward,
            discounted + weight * reward,
            weight * self._discount,
        )

    def end(self, i: int) -> None:
        """Complete the episode and report its sums."""
        self._add_up()
        self._reported.append((np.array([i]), self._sums[i : i + 1].copy()))
        self._sums[i] = self._start

    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """Store a row of rewards."""
        return self.bound_add_row()(rewards, ended)

    def bound_add_row(self) -> AddRow:
        """Return `add_row` as a closure, which takes two thirds of the time of a method."""
        pack, memory, kept = self._pack, self._memory, self._rewards
        n_rows, row_bytes = len(kept), self._n * 8

        def add_row(rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
            k = self._n_kept
            pack(memory, k * row_bytes, *rewards)
            # Only now: if struct refuses a reward, the row is not counted, and the next one overwrites it.
            self._n_kept = k + 1
            if ended:
                for i, _, _ in ended:
                    self._events += (k + 1, i, 1)
                self._n_ended += len(ended)
            # A view of the kept row, so that rewards are converted once, for the statistics and for the
            # batch.
            row: NDArray[np.float64] = kept[k]
            # `row` stays valid: the sums leave the rewards in place until the next row overwrites them.
            if k + 1 == n_rows:
                self._add_up()
            return row

        return add_row

    def add_stack(self, rewards: NDArray[Any], ended: Sequence[int]) -> None:
        """Store a row of rewards."""
        k = self._n_kept
        self._rewards[k] = rewards
        self._n_kept = k = k + 1
        for i in ended:
            self._events += (k, i, 1)
        self._n_ended += len(ended)
        if self._n_kept == len(self._rewards):
            self._add_up()

    def reserve(self, n_rows: int) -> tuple[NDArray[np.float64], int]:
        """Return the array of stored rows and the first of `n_rows` rows to write there. Call `store` next.

        n_rows: at most `most_rows`.
        """
        if self._n_kept + n_rows > len(self._rewards):
            self._add_up()
        return self._rewards, self._n_kept

    @property
    def most_rows(self) -> int:
        """Number of rows that fit into the array that `reserve` returns."""
        return len(self._rewards)

    def store(self, n_rows: int, events: NDArray[np.int64]) -> None:
        """Count rows that were written after `reserve`.

        events: [e, 3], row of the array that follows the end, environment, 1, in the order of time for each
            environment.
        """
        self._n_kept += n_rows
        self._events += events.ravel().tolist()
        self._n_ended += len(events)

    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """Add the valid steps of a failed row one by one."""
        # Only whole rows are kept, and in this one some environments were not stepped.
        for i, reward in enumerate(rewards):
            if is_number(reward):
                self._add_step(i, float(reward))
        for i, _, _ in ended:
            self.end(i)

    def state(self, i: int) -> State:
        """Add up the stored rows and return the sums."""
        self._add_up()
        return {"sums": self._sums[i].tolist()}

    def load_state(self, i: int, state: State) -> None:
        """Set the sums. Raises ValueError unless they are four numbers."""
        # Otherwise kept rows would later be added to the loaded sums.
        self._add_up()
        if "sums" not in state:
            raise ValueError(
                "TrajInfo: expected the state of a plain TrajInfo, got the state of class "
                f"{state.get('class')}"
            )
        sums = np.array(state["sums"], np.float64)
        if sums.shape != self._start.shape:
            raise ValueError(f"TrajInfo: state: expected 4 sums, got {state['sums']}")
        self._sums[i] = sums

    def prepare(self) -> None:
        """Add up the stored rows, unless that would load the compiler."""
        # Loading it takes a third of a second, during which a worker would not notice a request to close.
        if self._n == 1 or _COMPILED in sys.modules:
            self._add_up()

    def take(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, ordered by environment, then by time."""
        numbers = self._take_numbers()
        return [] if numbers is None else trajs_of(self._make, numbers)

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Add up the stored rows and return the statistics of each ended episode."""
        numbers = self._take_numbers(at_once=at_once)
        return b"" if numbers is None else numbers.tobytes()

    def _take_numbers(self, *, at_once: bool = False) -> NDArray[np.float64] | None:
        """Return the sums [e, 4] of the ended episodes, or None without any."""
        self._add_up(at_once=at_once)
        parts = self._reported
        if not parts:
            return None
        self._reported = []
        envs, numbers = parts[0]
        if len(parts) > 1:  # rows are added up once for each batch, usually
            envs = np.concatenate([envs for envs, _ in parts])
            numbers = np.concatenate([numbers for _, numbers in parts])
        # The parts are in the order of time, which a stable sort keeps within each environment.
        return numbers[envs.argsort(kind="stable")]

    def count(self) -> int:
        """Return the number of episodes that `take` would return."""
        return sum(len(envs) for envs, _ in self._reported) + self._n_ended

    def forget_after(self, count: int) -> None:
        """Drop all but the first `count` episodes that `take` would return."""
        # Ends in kept rows precede those reported since, as `step` and `end` add up first.
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
        if not self._n_kept:
            return
        add = add_up
        # Loading the compiler takes a third of a second: too long for one environment or a process about to
        # end.
        if self._n > 1 and not (at_once and _COMPILED not in sys.modules):
            if self._compiled is None:
                from parllel.cages.stepping import compiled

                self._compiled = compiled.add_up
            add = self._compiled
        # Nothing has changed so far: if loading the compiler fails, all rows are still kept.
        events = np.array(self._events, np.int64).reshape(-1, 3)
        ended = np.empty((len(events), 4))
        add(self._rewards, self._n_kept, events, self._start, self._discount, self._sums, ended)
        # `ended` has a row for every event, so that the compiled loop needs no counter.
        if self._n_ended < len(events):
            ends = events[:, 2] == 1
            events, ended = events[ends], ended[ends]
        if len(events):
            self._reported.append((events[:, 1], ended))
        self._events, self._n_ended, self._n_kept = [], 0, 0


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

    rewards: [at least rows, n].  events: [e, 3] of row, environment, and 1 if an episode ends before that
    row, 0 if one begins there and the episode in progress is dropped; in the order of time.  start: [4],
    initial length, return, discounted return and weight of an episode.  sums: [n, 4], of the episodes in
    progress, updated in place.  out_ended: [e, 4], sums of the episodes that end.
    """
    # Python floats add much faster than numpy scalars, with the same bits.
    columns = rewards[:rows].T.tolist()
    reached = [0] * len(columns)

    def continue_episode(i: int, stop: int) -> None:
        length, return_, discounted, weight = sums[i].tolist()
        for reward in columns[i][reached[i] : stop]:
            length += 1.0
            return_ += reward
            discounted += weight * reward
            # Not `discount**length`, which rounds differently from repeated products.
            weight *= discount
        sums[i] = length, return_, discounted, weight

    for e, (row, i, ends) in enumerate(events.tolist()):
        if ends:
            continue_episode(i, row)
            out_ended[e] = sums[i]
        sums[i] = start
        reached[i] = row
    for i in range(len(columns)):
        continue_episode(i, rows)


def _numbers(traj: TrajInfo) -> tuple[float, float, float, float]:
    return traj.length, traj.return_, traj.discounted_return, traj._weight


def follow(make: TrajInfoFactory, n: int) -> Trajectories:
    """Return trajectories of n environments: batched, unless the TrajInfo overrides per-step methods."""
    # An object, as the factory may be a function, or may set methods on the object.
    example = make_traj_info(make)
    # Only these two are called in every step; other additions of a subclass cost nothing there.
    sees_agent_info = overrides(example, TrajInfo, "see_agent_info")
    if sees_agent_info or overrides(example, TrajInfo, "step"):
        return PerStepTrajectories(make, n, example, sees_agent_info=sees_agent_info)
    return BatchedTrajectories(make, n, example)


def sees_agent_info(make: TrajInfoFactory) -> bool:
    """Return whether the TrajInfos of a factory override `see_agent_info`."""
    # Also called in the main process: only then does a cage bind the agent's fields.
    return overrides(make_traj_info(make), TrajInfo, "see_agent_info")


def make_traj_info(make: TrajInfoFactory) -> TrajInfo:
    """Call a TrajInfo factory. Raises TypeError unless it is callable and makes a TrajInfo."""
    if not callable(make):
        raise TypeError(
            f"traj_info: expected a class or function that makes a TrajInfo, got {make!r}"
        )
    traj = make()
    if not isinstance(traj, TrajInfo):
        raise TypeError(
            f"traj_info: expected a function that returns a TrajInfo, got {traj!r} from it"
        )
    return traj
