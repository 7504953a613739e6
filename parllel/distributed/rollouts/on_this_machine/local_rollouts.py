"""The workers of a run as threads of the trainer's process."""

# trainer   load_weights, check, close -->  WorkerThread, one for each worker
# worker    fragments --> buffer;  episodes --> statistics

from __future__ import annotations

from contextlib import ExitStack

from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.on_this_machine.worker_thread import WorkerThread
from parllel.distributed.rollouts.rollout_worker import BuildWorker, WorkerContext, worker_name
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.types import State


class LocalRollouts(Rollouts):
    """Runs each worker in a thread, which starts when the first weights arrive.

    The error of one worker ends the run. Put environments whose processes may die into an `EnvWorker`, which
    restarts them.

    Args:
        build: function that builds a worker from its context.
        n_workers: number of workers.
        buffer, statistics: passed to the workers in their contexts. `close` leaves them open.
    """

    def __init__(
        self,
        build: BuildWorker,
        n_workers: int,
        buffer: ReplayBufferInterface,
        statistics: EpisodeStatistics,
    ) -> None:
        if n_workers < 1:
            raise ValueError(f"LocalRollouts: n_workers: expected at least 1, got {n_workers}")
        self._threads: list[WorkerThread] = []
        self._closed = False
        with ExitStack() as stack:
            for number in range(n_workers):
                name = worker_name(number, 1)
                # What it pushes on the stack is closed after the worker, which is pushed last. If a
                # later build fails, all earlier workers are closed.
                worker = build(WorkerContext(name, buffer, statistics, stack))
                self._threads.append(stack.enter_context(WorkerThread(worker, name=name)))
            self._stack = stack.pop_all()

    def load_weights(self, weights: State, version: int) -> bool:
        """Load weights into all workers. The first weights start them."""
        # A list, so that all workers get them, whatever the first returns.
        # If one raises, those after it keep their weights: the error ends the run.
        loaded = [thread.load_weights(weights, version) for thread in self._threads]
        return all(loaded)

    def check(self) -> None:
        """Raise the error that ended a worker, if there is one."""
        for thread in self._threads:
            thread.check()

    def statuses(self) -> list[WorkerStatus]:
        """Return the current status of each worker."""
        return [thread.worker.status() for thread in self._threads]

    def close(self) -> None:
        """Stop the workers after their current turns, and close them. Idempotent.

        Raises:
            WorkerTimeoutError: if a turn does not end in time. Call `close` again later.
        """
        # All are told to stop before any is waited for, so that their last turns overlap.
        for thread in self._threads:
            thread.worker.stop()
        if not self._closed:
            # Before closing, which Ctrl-C may interrupt: the next call then takes the loop below.
            self._closed = True
            self._stack.close()
            return
        # The stack has closed each of them once, but one may have timed out.
        with ExitStack() as again:
            for thread in self._threads:
                again.callback(thread.close)
