"""The workers of a run, as the trainer sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from parllel.distributed.rollouts.worker_status import WorkerStatus, overview_of, stats_of
from parllel.types import Closeable, State


class Rollouts(Closeable, ABC):
    """Workers that make fragments with the trainer's weights, wherever they run.

    `FragmentSampler` gives them weights, looks whether they are well, and has what they do in its statistics.
    """

    @abstractmethod
    def load_weights(self, weights: State, version: int) -> bool:
        """Let all workers act with other weights, and begin with the first; see `RolloutWorker.load_weights`.

        Returns:
            Whether the version is above those that came before; otherwise nothing is changed.

        Raises:
            ValueError: if the weights do not fit the workers' agents; no worker is changed then.
            ClosedError: after `close`.
            Exception: what ended a worker.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise what ended a worker, if anything did."""

    def statuses(self) -> list[WorkerStatus]:
        """Return what each worker said of itself last, those that have ended included; wait for nothing.

        The default says nothing.
        """
        return []

    @property
    def stats(self) -> dict[str, float]:
        """Sums over workers for the log, as `stats_of` describes them; none if nothing is known."""
        statuses = self.statuses()
        return stats_of(statuses) if statuses else {}

    def overview(self) -> str:
        """Return some lines about workers, fragments, stages and queues; "" if nothing is known."""
        statuses = self.statuses()
        return overview_of(statuses) if statuses else ""

    @abstractmethod
    def close(self) -> None:
        """Stop and close all workers; may be called twice."""
