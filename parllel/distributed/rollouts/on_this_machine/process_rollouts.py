"""The workers of a run as processes of this machine."""

# trainer   load_weights, check, close -->  Desk  <--  SupervisedWorker, a thread for each worker's process
# worker    fragments --> buffer;  episodes --> statistics, through its thread in this process

from __future__ import annotations

import warnings
from contextlib import ExitStack
from time import monotonic

import cloudpickle

from parllel.distributed.rollouts.arguments import check_integer, check_timeout
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.on_this_machine.supervised_worker import SupervisedWorker
from parllel.distributed.rollouts.on_this_machine.worker_process import Desk
from parllel.distributed.rollouts.published_parts import PublishedLayout
from parllel.distributed.rollouts.rollout_worker import BuildWorker
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import ClosedError, RestartsUsedUpError, WorkerTimeoutError
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import State

# Time for the last turns of the workers, after which their processes are killed.
_MAX_END_S = 60.0
# Pause between two looks for a worker that is built.
_LOOK_S = 0.1


class ProcessRollouts(Rollouts):
    """Runs each worker in a process, which begins when the first weights arrive.

    In threads, workers share one interpreter lock. In processes, they step environments and compute actions
    at the same time.

    A worker whose process dies is started again, with a new name, the current weights, and new seeds if it
    derives them from its name. What the first start of a worker raises ends the run. What a later start
    raises counts as a death. A worker that has used up its restarts is parked, and the others continue.

    Args:
        build: function that builds a worker from its context, in the worker's process. Pickled by
            cloudpickle, so it may be a function of a notebook.
        n_workers: number of workers.
        buffer, statistics: receive fragments and episodes. `close` leaves them open.
        restarts, within_s: maximum number of restarts of a worker within this many seconds.
        start_method: of the processes: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: time in seconds after which a worker that gives no sign of life is killed and counts as
            dead. A worker must also be built within this time.

    Raises:
        ValueError: for fewer than one worker, negative restarts, or a start method that this system does not
            have.
        RestartsUsedUpError: if all workers died while they were built, and none may be started again.
        Exception: an error of `build`. All workers are closed.
    """

    def __init__(
        self,
        build: BuildWorker,
        n_workers: int,
        buffer: ReplayBufferInterface,
        statistics: EpisodeStatistics,
        *,
        restarts: int = 10,
        within_s: float = 600.0,
        start_method: str | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        if n_workers < 1:
            raise ValueError(f"ProcessRollouts: n_workers: expected at least 1, got {n_workers}")
        if check_integer("ProcessRollouts: restarts", restarts) < 0:
            raise ValueError(f"ProcessRollouts: restarts: expected 0 or more, got {restarts}")
        period_s = check_timeout("ProcessRollouts: within_s", within_s)
        self._timeout_s = check_timeout("ProcessRollouts: timeout_s", timeout_s)
        self._desk = Desk(buffer, statistics)
        self._workers: list[SupervisedWorker] = []
        self._n_notices = self._newest = 0
        self._error: Exception | None = None
        self._closed = False
        with ExitStack() as stack:
            # If one fails, all are closed.
            stack.callback(self.close)
            for number in range(n_workers):
                self._workers.append(
                    SupervisedWorker(
                        build,
                        number,
                        self._desk,
                        RestartBudget(restarts, period_s),
                        start_method=start_method,
                        timeout_s=self._timeout_s,
                    )
                )
            for worker in self._workers:
                worker.await_settled()
            self.check()
            stack.pop_all()

    def load_weights(self, weights: State, version: int) -> bool:
        """Publish weights. A worker takes them when it adds its next fragment, or in a quarter of a second.

        Raises:
            ValueError: if the weights do not fit the workers' agents. In this case no worker changes.
            ClosedError: after `close`.
            WorkerTimeoutError: if no worker is built yet, and none in time.
            Exception: the error that ended a worker.
        """
        self.check()
        if self._closed:
            raise ClosedError("ProcessRollouts: load_weights: the workers are closed")
        self._await_layout().check(weights)
        if check_integer("ProcessRollouts: version", version) <= self._newest:
            return False
        self._newest = version
        # Packed once, and now: the next update changes the trainer's arrays.
        self._desk.weights = cloudpickle.dumps(weights), version
        return True

    def _await_layout(self) -> PublishedLayout:
        """Wait until a worker is built: the first starts of all may have died."""
        deadline = monotonic() + self._timeout_s
        while (layout := self._desk.layout) is None:
            self.check()
            if monotonic() >= deadline:
                ended = [status for status in self.statuses() if status.reason]
                hint = f"; {ended[-1].name} ended: {ended[-1].reason}" if ended else ""
                raise WorkerTimeoutError(
                    f"ProcessRollouts: expected a worker to be built within {self._timeout_s:g} s, got none"
                    f"{hint}"
                )
            self._desk.stopping.wait(_LOOK_S)
        return layout

    def check(self) -> None:
        """Raise the error that ended the run, and warn about workers that are parked or restarted."""
        notices = self._desk.notices
        while len(notices) > self._n_notices:
            notice = notices[self._n_notices]
            # Counted before it is raised, so that the next check reports the next one.
            self._n_notices += 1
            if isinstance(notice, Exception):
                self._error = self._error or notice
            else:
                warnings.warn(notice, RuntimeWarning, stacklevel=2)
                if self._desk.records.count("parked") == len(self._workers):
                    self._error = self._error or RestartsUsedUpError(
                        f"all workers are parked: {notice}"
                    )
        if self._error is not None:
            raise self._error

    def statuses(self) -> list[WorkerStatus]:
        """Return the last known status of each start of a worker, at most a quarter of a second old."""
        return self._desk.records.statuses(self._desk.handled)

    def close(self) -> None:
        """Stop the workers after their current turns, and end their processes. Idempotent.

        Raises:
            WorkerTimeoutError: if a turn does not end within a minute. Its process is killed.
        """
        self._closed = True
        # All are told to stop before any is waited for, so that their last turns overlap.
        self._desk.stopping.set()
        deadline = monotonic() + _MAX_END_S
        with ExitStack() as stack:
            for worker in self._workers:
                stack.callback(self._close_worker, worker, deadline)

    @staticmethod
    def _close_worker(worker: SupervisedWorker, deadline: float) -> None:
        if not worker.close(deadline):
            raise WorkerTimeoutError(
                f"worker {worker.number}: its turn did not end within {_MAX_END_S:g} s of close(), so its "
                "process was killed; give its environments a shorter timeout_s"
            )
