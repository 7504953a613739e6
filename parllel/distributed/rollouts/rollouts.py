"""The trainer's interface to the workers of a run."""

# Only the trainer's thread calls these methods. What workers produce goes to the buffer and to the
# statistics, not through here.

from __future__ import annotations

from abc import ABC, abstractmethod

from parllel.distributed.rollouts.worker_status import WorkerStatus, overview_of, stats_of
from parllel.types import Closeable, State


class Rollouts(Closeable, ABC):
    """Workers that produce fragments with the trainer's weights, wherever they run.

    `FragmentSampler` publishes weights to them, checks that they are alive, and includes their statistics.
    """

    @abstractmethod
    def load_weights(self, weights: State, version: int) -> bool:
        """Publish weights to all workers. See `RolloutWorker.load_weights`.

        Workers start running once the first weights arrive.

        Returns:
            True if the version is above all earlier ones. Otherwise False, and nothing changes.

        Raises:
            ValueError: if the weights do not fit the workers' agents. In this case no worker
                changes.
            ClosedError: after `close`.
            Exception: the error that ended a worker.
        """

    # Called in every slice of the wait for a batch, so it must not block.
    @abstractmethod
    def check(self) -> None:
        """Raise the error that ended a worker, if there is one."""

    def statuses(self) -> list[WorkerStatus]:
        """Return the last known status of each worker, including ended workers. Never blocks.

        Empty by default.
        """
        return []

    @property
    def stats(self) -> dict[str, float]:
        """Sums over workers for the log, see `stats_of`. Empty if no status is known."""
        statuses = self.statuses()
        return stats_of(statuses) if statuses else {}

    def overview(self) -> str:
        """Return a summary of workers, fragments, stages and queues, or "" if none is known."""
        statuses = self.statuses()
        return overview_of(statuses) if statuses else ""

    @abstractmethod
    def close(self) -> None:
        """Stop and close all workers. Idempotent."""
