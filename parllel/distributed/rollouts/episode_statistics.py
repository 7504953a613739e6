"""Statistics of the episodes that end in workers, on their way to the trainer's log.

    worker threads  --- report --->  EpisodeStatistics  --- drain, stats --->  the trainer

One lock guards everything.
"""

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

# Number of recent episodes over which means are taken, per task.
_WINDOW = 100


class EpisodeStatistics:
    """Collects episodes that ended in any worker, until the trainer logs them. Thread-safe.

    Workers report whole TrajInfos, of any subclass, and never wait.

    Args:
        capacity: maximum number of episodes that wait for `drain`. Beyond this number, the oldest
            are dropped.

    Attributes:
        dropped: number of episodes dropped because nobody drained them.

    Raises:
        ValueError: if `capacity` is less than 1.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        check_count("EpisodeStatistics: capacity", capacity)
        self.dropped = 0
        # With their tasks.
        # Bounded, because workers never wait, and perhaps nobody drains.
        self._waiting: deque[tuple[str, TrajInfo]] = deque(maxlen=capacity)
        self._recent: dict[str, deque[dict[str, Any]]] = {}
        self._episodes: dict[str, int] = {}
        self._lock = threading.Lock()

    def report(self, trajs: Sequence[TrajInfo], task: str = "") -> None:
        """Add episodes of a task. The task "" is for runs with only one.

        Raises:
            TypeError: if one of `trajs` is not a TrajInfo. In this case no episode is added.
        """
        for traj in trajs:
            if not isinstance(traj, TrajInfo):
                raise TypeError(
                    f"EpisodeStatistics: report: expected TrajInfos, got a {type(traj).__name__}"
                )
        # Outside the lock, because it calls users' code; and first, because nothing is added if it raises.
        rows = [_numbers(traj) for traj in trajs]
        with self._lock:
            # The deque drops its oldest silently, so they are counted here.
            room = (self._waiting.maxlen or 0) - len(self._waiting)
            self.dropped += max(0, len(trajs) - room)
            self._waiting.extend((task, traj) for traj in trajs)
            self._recent.setdefault(task, deque(maxlen=_WINDOW)).extend(rows)
            self._episodes[task] = self._episodes.get(task, 0) + len(trajs)

    def drain(self) -> list[TrajInfo]:
        """Return the episodes of all tasks since the last call, in the order they were reported."""
        return [traj for _, traj in self.drain_tasks()]

    def drain_tasks(self) -> list[tuple[str, TrajInfo]]:
        """Like `drain`, but return each episode with its task."""
        with self._lock:
            # With the lock, or an episode reported between copy and clearing would be lost.
            waiting = list(self._waiting)
            self._waiting.clear()
        return waiting

    @property
    def episodes(self) -> dict[str, int]:
        """Number of episodes reported for each task."""
        with self._lock:
            return dict(self._episodes)

    @property
    def stats(self) -> dict[str, float]:
        """Log values for each named task, in the format of a sampler's `stats`.

        `task/episodes` is the number of its episodes so far; `task/return`, `task/length` and the other
        numbers of its TrajInfos are means over the last 100 episodes.
        """
        with self._lock:
            # Only copied with the lock, as computing the means would hold up the workers. A row
            # never changes once it is added, so the copied lists are enough.
            recent = {task: list(rows) for task, rows in self._recent.items() if task and rows}
            episodes = dict(self._episodes)
        found: dict[str, float] = {}
        for task, rows in recent.items():
            found[f"{task}/episodes"] = episodes[task]
            # Only numbers that all episodes have: a mean over some would pass for a mean over all.
            for name in set.intersection(*(set(row) for row in rows)):
                found[f"{task}/{name}"] = float(np.mean([row[name] for row in rows]))
        return dict(sorted(found.items()))

    def state(self) -> State:
        """Return the counts of episodes and the recent numbers.

        Like fragments in a buffer, episodes that wait for `drain` are not saved.
        """
        with self._lock:
            # Counts and recent numbers of one moment.
            tasks = {
                task: {
                    "episodes": episodes,
                    # `stats` has no means for the unnamed task, which the log computes itself.
                    "recent": [_as_floats(row) for row in self._recent[task]] if task else [],
                }
                for task, episodes in self._episodes.items()
            }
            return {"dropped": self.dropped, "tasks": tasks}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Episodes that wait for `drain` remain.

        Raises:
            ValueError: if `state` has another format. In this case nothing changes.
        """
        try:
            dropped = _count(state["dropped"])
            tasks = {str(task): saved for task, saved in state["tasks"].items()}
            episodes = {task: _count(saved["episodes"]) for task, saved in tasks.items()}
            recent = {
                task: [_as_floats(row) for row in saved["recent"]] for task, saved in tasks.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                "EpisodeStatistics: expected the state of an EpisodeStatistics, got one that "
                f"cannot be read ({type(error).__name__}: {error})"
            ) from None
        with self._lock:
            # All conversions are done, so nothing can fail halfway.
            self.dropped, self._episodes = dropped, episodes
            self._recent = {task: deque(rows, maxlen=_WINDOW) for task, rows in recent.items()}


def _count(value: Any) -> int:
    count = int(value)
    if count < 0:
        raise ValueError(f"expected a number of episodes of at least 0, got {count}")
    return count


def _as_floats(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items()}


def _numbers(traj: TrajInfo) -> dict[str, float]:
    """Return the numbers of an episode, copied now because the owner may change the object later."""
    numbers = {}
    for name, value in traj.as_dict().items():
        if isinstance(value, (Real, np.bool_)):
            # An int may exceed any float; computing its mean would end the run.
            with suppress(OverflowError):
                numbers[name] = float(value)
    return numbers
