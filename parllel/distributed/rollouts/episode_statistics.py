"""Episodes on their way from workers to the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

from parllel.cages.traj_info import TrajInfo
from parllel.distributed.rollouts.arguments import check_count
from parllel.types import State

# Episodes of a task that its means are taken over.
_WINDOW = 100


class EpisodeStatistics:
    """Collect episodes that ended in any worker, until the trainer takes them for the log.

    Workers report whole TrajInfos, of any subclass, after the steps in which episodes ended, and wait for
    nothing. Any number of threads may use it.

    Args:
        capacity: most episodes that wait for `drain`; the oldest are dropped when there are more.

    Attributes:
        dropped: how many were dropped because nobody took them.

    Raises:
        ValueError: if `capacity` is less than one.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        check_count("EpisodeStatistics: capacity", capacity)
        self.dropped = 0
        # With their tasks.
        self._waiting: deque[tuple[str, TrajInfo]] = deque(maxlen=capacity)
        self._recent: dict[str, deque[dict[str, Any]]] = {}
        self._episodes: dict[str, int] = {}
        self._lock = threading.Lock()

    def report(self, trajs: Sequence[TrajInfo], task: str = "") -> None:
        """Add episodes of a task; the name "" is for environments that have only one.

        Raises:
            TypeError: if one of `trajs` is no TrajInfo; none is added then.
        """
        for traj in trajs:
            if not isinstance(traj, TrajInfo):
                raise TypeError(
                    f"EpisodeStatistics: report: expected TrajInfos, got a {type(traj).__name__}"
                )
        # Without the lock, as this is code of users; and first, as nothing is added if it raises.
        rows = [_numbers(traj) for traj in trajs]
        with self._lock:
            room = (self._waiting.maxlen or 0) - len(self._waiting)
            self.dropped += max(0, len(trajs) - room)
            self._waiting.extend((task, traj) for traj in trajs)
            self._recent.setdefault(task, deque(maxlen=_WINDOW)).extend(rows)
            self._episodes[task] = self._episodes.get(task, 0) + len(trajs)

    def drain(self) -> list[TrajInfo]:
        """Return the episodes of all tasks since the last call, in the order in which they were reported."""
        return [traj for _, traj in self.drain_tasks()]

    def drain_tasks(self) -> list[tuple[str, TrajInfo]]:
        """Return what `drain` returns, each episode with its task."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        return waiting

    @property
    def episodes(self) -> dict[str, int]:
        """How many episodes of each task have been reported."""
        with self._lock:
            return dict(self._episodes)

    @property
    def stats(self) -> dict[str, float]:
        """Return for each task with a name what the log says of it, as a sampler's `stats`.

        `task/episodes` is their number so far; `task/return`, `task/length` and the other numbers of its
        TrajInfos are means over the last 100 episodes.
        """
        with self._lock:
            recent = {task: list(rows) for task, rows in self._recent.items() if task and rows}
            episodes = dict(self._episodes)
        found: dict[str, float] = {}
        for task, rows in recent.items():
            found[f"{task}/episodes"] = episodes[task]
            # The mean over some episodes would pass for that of all, so all must have a number.
            for name in set.intersection(*(set(row) for row in rows)):
                found[f"{task}/{name}"] = float(np.mean([row[name] for row in rows]))
        return dict(sorted(found.items()))

    def state(self) -> State:
        """Return how many episodes there were, and what means are taken over.

        Episodes that wait for `drain` are left out, as are the fragments in a buffer.
        """
        with self._lock:
            tasks = {
                task: {
                    "episodes": episodes,
                    # `stats` has no means of episodes without a task, which the log counts by itself.
                    "recent": [_as_floats(row) for row in self._recent[task]] if task else [],
                }
                for task, episodes in self._episodes.items()
            }
            return {"dropped": self.dropped, "tasks": tasks}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned; episodes that wait for `drain` stay.

        Raises:
            ValueError: if it is that of something else; nothing is changed then.
        """
        try:
            dropped = _count(state["dropped"])
            tasks = {str(task): one for task, one in state["tasks"].items()}
            episodes = {task: _count(one["episodes"]) for task, one in tasks.items()}
            recent = {
                task: [_as_floats(row) for row in one["recent"]] for task, one in tasks.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                "EpisodeStatistics: expected a state with the number of dropped episodes, and for each task "
                f"its episodes and recent numbers, got something else ({type(error).__name__}: {error})"
            ) from None
        with self._lock:
            self.dropped, self._episodes = dropped, episodes
            self._recent = {task: deque(rows, maxlen=_WINDOW) for task, rows in recent.items()}


def _count(value: Any) -> int:
    count = int(value)
    if count < 0:
        raise ValueError(f"{count} is no number of episodes")
    return count


def _as_floats(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items()}


def _numbers(traj: TrajInfo) -> dict[str, float]:
    """Return what can be averaged, as it is now: later the object is its owner's."""
    numbers = {}
    for name, value in traj.as_dict().items():
        if isinstance(value, (Real, np.bool_)):
            # An int may be larger than any float. Its mean would end the run whenever the log asks for it.
            with suppress(OverflowError):
                numbers[name] = float(value)
    return numbers
