"""The workers of a run as processes of this machine."""

# trainer   load_weights, check, close -->  WorkerProcess, one for each worker
# worker    fragments --> buffer;  episodes --> statistics, through its thread in this process

from __future__ import annotations

from contextlib import ExitStack

import cloudpickle

from parllel.distributed.rollouts.arguments import check_integer, check_timeout
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.on_this_machine.worker_process import WorkerProcess
from parllel.distributed.rollouts.rollout_worker import BuildWorker, worker_name
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import ClosedError
from parllel.types import State


class ProcessRollouts(Rollouts):
    """Runs each worker in a process, which begins when the first weights arrive.

    In threads, workers share one interpreter lock. In processes, they step environments and compute actions
    at the same time. The error or death of one worker ends the run. Put environments whose processes may
    die into an `EnvWorker`, which restarts them.

    Args:
        build: function that builds a worker from its context, in the worker's process. Pickled by
            cloudpickle, so it may be a function of a notebook.
        n_workers: number of workers.
        buffer, statistics: receive fragments and episodes. `close` leaves them open.
        start_method: of the processes: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: time in seconds after which a worker that gives no sign of life counts as dead. A worker
            must also be built within this time.

    Raises:
        ValueError: for fewer than one worker, or a start method that this system does not have.
        WorkerDiedError, WorkerTimeoutError: if a process does not start, or dies while it builds its worker.
        Exception: an error of `build`. All workers are closed.
    """

    def __init__(
        self,
        build: BuildWorker,
        n_workers: int,
        buffer: ReplayBufferInterface,
        statistics: EpisodeStatistics,
        *,
        start_method: str | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        if n_workers < 1:
            raise ValueError(f"ProcessRollouts: n_workers: expected at least 1, got {n_workers}")
        patience_s = check_timeout("ProcessRollouts: timeout_s", timeout_s)
        self._processes: list[WorkerProcess] = []
        self._newest = 0
        self._closed = False
        with ExitStack() as stack:
            # If one fails, all are closed.
            stack.callback(self.close)
            for number in range(n_workers):
                self._processes.append(
                    WorkerProcess(
                        build,
                        worker_name(number, 1),
                        buffer,
                        statistics,
                        start_method=start_method,
                        timeout_s=patience_s,
                    )
                )
            for process in self._processes:
                process.await_built()
            stack.pop_all()

    def load_weights(self, weights: State, version: int) -> bool:
        """Publish weights. A worker takes them when it adds its next fragment, or in a quarter of a second.

        Raises:
            ValueError: if the weights do not fit the workers' agents. In this case no worker changes.
            ClosedError: after `close`.
            Exception: the error that ended a worker.
        """
        self.check()
        if self._closed:
            raise ClosedError("ProcessRollouts: load_weights: the workers are closed")
        for process in self._processes:
            process.check_weights(weights)
        if check_integer("ProcessRollouts: version", version) <= self._newest:
            return False
        self._newest = version
        # Packed once, and now: the next update changes the trainer's arrays.
        packed = cloudpickle.dumps(weights)
        for process in self._processes:
            process.publish(packed, version)
        return True

    def check(self) -> None:
        """Raise the error that ended a worker, if there is one."""
        for process in self._processes:
            process.check()

    def statuses(self) -> list[WorkerStatus]:
        """Return the status that each worker has reported last, at most a quarter of a second old."""
        return [process.status() for process in self._processes]

    def close(self) -> None:
        """Stop the workers after their current turns, and end their processes. Idempotent.

        Raises:
            WorkerTimeoutError: if a turn does not end within a minute. Its process is killed.
        """
        self._closed = True
        # All are told to stop before any is waited for, so that their last turns overlap.
        for process in self._processes:
            process.stop()
        with ExitStack() as stack:
            for process in self._processes:
                stack.callback(process.close)
