"""The workers of a run in threads of the trainer's process."""

from __future__ import annotations

from contextlib import ExitStack

from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.rollout_worker import BuildWorker, WorkerContext, worker_name
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.distributed.rollouts.worker_thread import WorkerThread
from parllel.types import State


class LocalRollouts(Rollouts):
    """Run each worker in a thread, from the first weights on.

    What ends one of them ends the run: environments in processes that may die belong into an `EnvWorker`,
    which starts them again.

    Args:
        build: puts a worker together.
        n_workers: how many.
        buffer, statistics: what workers are given as their places; not closed with this.

    Raises:
        ValueError: if there is not at least one worker.
        Exception: what `build` raises; what was built before is closed then.
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
                worker = build(WorkerContext(name, buffer, statistics, stack))
                self._threads.append(stack.enter_context(WorkerThread(worker, name=name)))
            self._stack = stack.pop_all()

    def load_weights(self, weights: State, version: int) -> bool:
        """Give all workers weights; the first let them begin."""
        # All of them, whatever the first says.
        loaded = [thread.load_weights(weights, version) for thread in self._threads]
        return all(loaded)

    def check(self) -> None:
        """Raise what ended a worker, if anything did."""
        for thread in self._threads:
            thread.check()

    def statuses(self) -> list[WorkerStatus]:
        """Return what there is to say of each worker now."""
        return [thread.worker.status() for thread in self._threads]

    def close(self) -> None:
        """Stop the workers after their present turns, and close them; may be called twice.

        Raises:
            WorkerTimeoutError: if a turn does not end in time; call it again later.
        """
        for thread in self._threads:
            thread.worker.stop()
        if not self._closed:
            self._closed = True
            self._stack.close()
            return
        # The stack closes each of them once, and one may have had to be left as it was.
        with ExitStack() as again:
            for thread in self._threads:
                again.callback(thread.close)
