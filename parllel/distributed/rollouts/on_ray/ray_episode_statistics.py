"""Statistics of the episodes of workers on Ray, on their way to the trainer's log.

    worker    EpisodeReporter  --- packed episodes --->  StatisticsActor  --- drain --->  trainer

Neither side blocks the other: the trainer's call stays pending while it learns.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import cloudpickle
import ray

from parllel.cages.traj_info import TrajInfo
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.on_ray.answers import answer
from parllel.distributed.rollouts.on_ray.ray_connection import RayConnection
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet
from parllel.distributed.rollouts.on_ray.start_actor import here, start_actor
from parllel.errors import WorkerDiedError
from parllel.types import Closeable


class StatisticsActor:
    """Holds packed episodes until the trainer drains them. It cannot unpack classes of a script."""

    def __init__(self, capacity: int) -> None:
        end_with_raylet()
        self._capacity = capacity
        # Messages with the number of their episodes.
        # Without a lock, as Ray runs the methods of this actor one at a time.
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._episodes = self._dropped = 0

    def report(self, packed: bytes, n: int) -> None:
        """Add n packed episodes."""
        self._waiting.append((packed, n))
        self._episodes += n
        # Whole messages. The newest stays: the trainer drops what is beyond its capacity.
        while self._episodes > self._capacity and len(self._waiting) > 1:
            _, oldest = self._waiting.popleft()
            self._episodes -= oldest
            self._dropped += oldest

    def drain(self) -> tuple[list[bytes], int]:
        """Return all packed episodes since the last call, and the number of those dropped meanwhile."""
        waiting, dropped = [packed for packed, _ in self._waiting], self._dropped
        self._waiting.clear()
        self._episodes = self._dropped = 0
        return waiting, dropped


class RayEpisodeStatistics(EpisodeStatistics, Closeable):
    """The trainer's EpisodeStatistics for workers in other processes.

    Episodes arrive through an actor on this process's node; `drain` never waits. If the actor dies,
    Ray restarts it, and the episodes that it held are missing in the log.

    Args:
        capacity: maximum number of episodes that wait for `drain`.

    Attributes:
        actor: the actor that workers report to.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        super().__init__(capacity)
        self._tie = RayConnection()
        self.actor: Any = start_actor(
            StatisticsActor, capacity, num_cpus=0, max_restarts=-1, scheduling_strategy=here()
        )
        self._drained: Any = None  # the pending reply to a `drain` call
        self._closed = False

    def drain_tasks(self) -> list[tuple[str, TrajInfo]]:
        """Return the episodes that have arrived since the last call, each with its task."""
        # After Ray was shut down nothing more can arrive.
        if not self._closed and self._tie.holds:
            self._collect()
        return super().drain_tasks()

    def _collect(self) -> None:
        # The call stays pending between calls of `drain`: its episodes have left the actor.
        if self._drained is None:
            self._drained = self.actor.drain.remote()
        if not ray.wait([self._drained], timeout=0)[0]:
            return
        # The next call is on its way while these episodes are unpacked.
        reference, self._drained = self._drained, self.actor.drain.remote()
        try:
            waiting, dropped = answer(reference, "RayEpisodeStatistics", "drain")
            with self._lock:
                self.dropped += dropped
            for packed in waiting:
                for task, trajs in cloudpickle.loads(packed).items():
                    self.report(trajs, task)
        except WorkerDiedError:
            pass  # Ray restarts the actor, and the next call asks it

    def close(self) -> None:
        """End the actor. Idempotent."""
        if not self._closed:
            self._closed = True
            self._drained = None
            if self._tie.holds:
                ray.kill(self.actor)


class EpisodeReporter:
    """Sends the episodes of one worker to the actor, and keeps them while the actor is being restarted."""

    def __init__(self, statistics: EpisodeStatistics, actor: Any) -> None:
        self._statistics, self._actor = statistics, actor
        self._unsent: tuple[bytes, int] | None = None  # with the number of its episodes

    def send(self) -> None:
        """Send the collected episodes, and wait for the acknowledgement, so that only one call is pending."""
        # One message at a time: new episodes stay where they are until it is acknowledged.
        if self._unsent is None:
            by_task: dict[str, list[TrajInfo]] = {}
            drained = self._statistics.drain_tasks()
            for task, traj in drained:
                by_task.setdefault(task, []).append(traj)
            # By our own cloudpickle, see `RayRollouts`.
            self._unsent = (cloudpickle.dumps(by_task), len(drained)) if drained else None
        if self._unsent is not None:
            # A dead actor is being restarted, so the same episodes are sent again next time.
            # A time-out is not suppressed, and ends the worker.
            with suppress(WorkerDiedError):
                answer(self._actor.report.remote(*self._unsent), "EpisodeStatistics", "report")
                self._unsent = None
