"""The workers of a run, as the trainer sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

from parllel.rollouts.worker_status import WorkerStatus
from parllel.types import State

RolloutsT = TypeVar("RolloutsT", bound="Rollouts")


class Rollouts(ABC):
    """Workers that make fragments with the trainer's weights, wherever they run.

    The trainer gives `load_weights` to `FragmentSampler` as `publish_to`, and `check` as `check_workers`.
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

    @abstractmethod
    def statuses(self) -> list[WorkerStatus]:
        """Return what each worker said of itself last, those that have ended included."""

    @abstractmethod
    def close(self) -> None:
        """Stop and close all workers; may be called twice."""

    def __enter__(self: RolloutsT) -> RolloutsT:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
