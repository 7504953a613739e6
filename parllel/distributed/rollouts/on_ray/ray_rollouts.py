"""The trainer's interface to the workers of a run on Ray.

    trainer   RayRollouts  --- publish, statuses, stop --->  RolloutManager (actor)  --->  workers (actors)
              check        <--- one pending `notice` call --  answered when a worker fails

The manager runs on the trainer's node, and dies with the trainer.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import ray

from parllel.distributed.rollouts.on_ray.answers import LATE_S, START_S, answer
from parllel.distributed.rollouts.on_ray.packed_build import pack_build
from parllel.distributed.rollouts.on_ray.publication import fingerprint_of
from parllel.distributed.rollouts.on_ray.ray_connection import RayConnection
from parllel.distributed.rollouts.on_ray.ray_episode_statistics import RayEpisodeStatistics
from parllel.distributed.rollouts.on_ray.ray_replay_buffer import RayReplayBuffer
from parllel.distributed.rollouts.on_ray.rollout_manager import Failure, RolloutManager
from parllel.distributed.rollouts.on_ray.start_actor import here, start_actor
from parllel.distributed.rollouts.on_ray.worker_options import WorkerOptions, described
from parllel.distributed.rollouts.on_ray.worker_places import WorkerPlaces, free_resources
from parllel.distributed.rollouts.published_parts import PublishedLayout
from parllel.distributed.rollouts.rollout_worker import BuildWorker
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import ClosedError, WorkerError, WorkerTimeoutError
from parllel.system.processes.exceptions import raise_packed
from parllel.types import State

# Time-out of one `notice` call, which is then repeated.
_NEWS_S = 3600.0


class RayRollouts(Rollouts):
    """Runs workers on the nodes of a Ray cluster, under supervision.

    `build` is pickled by the installed cloudpickle before Ray sends it, see `pack_build`. Workers import
    modules from the same folders as this process, if their nodes have them.

    Args:
        build: function that builds a worker in its actor.
        n_workers: number of workers.
        buffer, statistics: receive fragments and episodes. `close` leaves them open.
        options: resources, places and restarts of each worker.

    Raises:
        ValueError: if the cluster lacks the resources.
        WorkerTimeoutError: if they must be reserved together, and are not free within `start_timeout_s`.
        TypeError: if `buffer` or `statistics` is not the Ray version, which other processes can reach.
    """

    def __init__(
        self,
        build: BuildWorker,
        n_workers: int,
        buffer: RayReplayBuffer,
        statistics: RayEpisodeStatistics,
        options: WorkerOptions | None = None,
    ) -> None:
        options = options or WorkerOptions()
        _check(n_workers, buffer, statistics)
        self._options = options
        self._layout: PublishedLayout | None = None
        self._version: int | None = None
        self._news: Any = None
        # The pending `statuses` call, and the result of the one before.
        self._asked: Any = None
        self._statuses: list[WorkerStatus] = []
        self._n_news, self._closed = 0, False
        # Before the actor, because it remembers the connection to which the actor belongs.
        self._tie = RayConnection()
        packed = pack_build(build)
        self._places = WorkerPlaces(n_workers, options)
        self._manager: Any = start_actor(
            RolloutManager,
            packed,
            n_workers,
            options,
            self._places.strategy,
            buffer,
            statistics.actor,
            num_cpus=0,
            # Each worker has one pending report there, which must not block the trainer's calls.
            max_concurrency=n_workers + 100,
            scheduling_strategy=here(),
        )
        try:
            self._ask("start", wait_s=START_S)
        except BaseException:  # includes Ctrl-C: nobody holds this object to close it
            self._end_manager()
            raise

    def load_weights(self, weights: State, version: int) -> bool:
        """Publish weights. Each worker fetches them with its next report."""
        self._check_open("load_weights")
        # First, so that the error of a worker is not hidden by one about the weights.
        self.check()
        if self._layout is None:
            self._layout = self._first_layout()
        # Here rather than in the workers: weights that do not fit must reach none of them.
        self._layout.check(weights)
        if self._version is not None and version <= self._version:
            return False
        # Ray copies the arguments within the call, so the caller may change its arrays afterwards.
        loaded: bool = self._ask("publish", weights, version, fingerprint_of(weights))
        # After the answer: if that is lost, the version may be published again. The manager ignores
        # it if it has it already.
        self._version = version
        return loaded

    def _first_layout(self) -> PublishedLayout:
        """Wait until the first worker is built. Raises if it failed."""
        # Longer than the manager's own time-out, whose error is more specific.
        timeout_s = self._options.start_timeout_s + LATE_S
        left_s = timeout_s
        while left_s > 0:
            # In slices, so that a worker that cannot be built raises its error at once.
            layout: PublishedLayout | None = self._ask("layout", min(1.0, left_s), wait_s=1.0)
            if layout is not None:
                return layout
            self.check()
            left_s -= 1.0
        ended = [status for status in self.ask_statuses() if status.reason]
        hint = f"; {ended[-1].name} ended: {ended[-1].reason}" if ended else ""
        raise WorkerTimeoutError(
            f"RayRollouts: expected a worker to be built within {timeout_s:g} s, got "
            f"none; {free_resources(self._options)}, and each worker needs "
            f"{described(self._options.reserved)}{hint}"
        )

    def check(self) -> None:
        """Raise the error that ended a worker, and warn about workers that are parked or restarted."""
        if self._closed:
            return
        self._tie.check("RayRollouts: check")
        # One call is always pending at the manager, so that news needs no polling there.
        if self._news is None:
            self._news = self._manager.notice.remote(self._n_news, _NEWS_S)
        while ray.wait([self._news], timeout=0)[0]:
            # If the manager has died, this raises, and so does every later call, as `_news` stays.
            notice = answer(self._news, "RolloutManager", "notice")
            # Counted before it is raised, so that the next check reports the next one.
            self._n_news += notice is not None
            self._news = self._manager.notice.remote(self._n_news, _NEWS_S)
            if notice is None:
                continue
            if isinstance(notice, Failure):
                raise_packed(notice.error, f"{notice.worker} on Ray")
            warnings.warn(notice, RuntimeWarning, stacklevel=2)

    def statuses(self) -> list[WorkerStatus]:
        """Return the last status received from each start of a worker. Never blocks."""
        if not self._closed and self._tie.holds:
            if self._asked is None:
                self._asked = self._manager.statuses.remote(fresh=False)
            elif ray.wait([self._asked], timeout=0)[0]:
                # Taken out first, so that the next call asks again if this answer is an error.
                asked, self._asked = self._asked, None
                # `check` raises the death of the manager.
                with suppress(WorkerError):
                    self._statuses = answer(asked, "RolloutManager", "statuses")
        return self._statuses

    def ask_statuses(self) -> list[WorkerStatus]:
        """Query all running workers, and wait for the answers.

        Raises:
            ClosedError: after `close`.
            WorkerError: if the manager does not answer.
        """
        self._check_open("ask_statuses")
        self._tie.check("RayRollouts: ask_statuses")
        reference = self._manager.statuses.remote(fresh=True)
        self._statuses = answer(reference, "RolloutManager", "statuses")
        return self._statuses

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop all workers, kill those that do not end in time, and end the manager. Idempotent."""
        if self._closed:
            return
        # Before asking: the manager is killed in any case, so a second call has nothing to do.
        self._closed = True
        try:
            # If the manager is dead, so are its workers.
            with suppress(WorkerError):
                self._statuses = self._ask("stop", timeout_s, wait_s=timeout_s)
        finally:
            # Also after Ctrl-C: killing the manager ends all that it started.
            self._end_manager()

    def _end_manager(self) -> None:
        # Otherwise the actor ended with its Ray, and this process may be in another one.
        if self._tie.holds:
            ray.kill(self._manager)
            self._places.remove()

    def _ask(self, method: str, *arguments: Any, wait_s: float = 0.0) -> Any:
        self._tie.check(f"RayRollouts: {method}")
        reference = getattr(self._manager, method).remote(*arguments)
        return answer(reference, "RolloutManager", method, wait_s + LATE_S)

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise ClosedError(f"RayRollouts: {doing}: the workers are closed")


def _check(n_workers: int, buffer: object, statistics: object) -> None:
    if n_workers < 1:
        raise ValueError(f"RayRollouts: n_workers: expected at least 1, got {n_workers}")
    for name, value, kind in (
        ("buffer", buffer, RayReplayBuffer),
        ("statistics", statistics, RayEpisodeStatistics),
    ):
        if not isinstance(value, kind):
            raise TypeError(
                f"RayRollouts: {name}: expected a {kind.__name__}, because other processes must be "
                f"able to reach it, got a {type(value).__name__}"
            )
