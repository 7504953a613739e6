"""The interface of several processes that learn together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray


class LearnerGroup(ABC):
    """Learners, each in its own process, with equal weights and its own columns of every batch.

    The first learner has rank 0. Its runner trains, evaluates, logs and saves; the other processes answer
    its requests. `parllel.torch.Learners` starts them on this machine,
    `parllel.distributed.rollouts.on_ray.RayLearners` on a cluster.

    Attributes:
        n: number of learners.
        rank: number of the learner in this process, below n.
    """

    n: int
    rank: int

    @abstractmethod
    def add(self, array: NDArray[Any]) -> None:
        """Replace a contiguous array, in place, by the sum over all learners, rounded alike in all.

        All learners must call it, with arrays of equal shape and dtype.

        Raises:
            WorkerError: if a learner has died or does not answer.
            Exception: in the first learner, the exception that ended another one.
        """

    @abstractmethod
    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays of all learners, in their order. Otherwise like `add`."""

    @abstractmethod
    def start(self, folder: Path | None) -> list[Any]:
        """Start the other processes, once. Returns what each of them answers when it has built its parts.

        folder: of the run, for what they write until the end; None for a temporary folder.

        Raises:
            Exception: any error of the build function in one of them.
        """

    @abstractmethod
    def ask(self, op: str, *args: Any, each: Sequence[Any] = ()) -> None:
        """Send a request to all other learners.

        each: a further argument for each of them, in their order.
        """

    @abstractmethod
    def answers(self) -> list[Any]:
        """Return the answers of the other learners to the last request, in their order."""


class Exchange(Protocol):
    """How learners exchange arrays. Each learner calls `open` once, and the others after it."""

    def open(self, rank: int, timeout_s: float, look: Callable[[], object]) -> None:
        """Take part as learner `rank`.

        timeout_s: time limit of an exchange.  look: called now and then while this learner waits; may raise.
        """

    def settle(self) -> None:
        """Release what only starting processes need, once all learners have called `open`."""

    def add(self, array: NDArray[Any]) -> None:
        """Replace a contiguous array, in place, by the sum over all learners. See `LearnerGroup.add`.

        Raises:
            ClosedError: before `open`, and after `close`.
            LearnerLostError: if another learner has left, or does not come within the time limit.
        """

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays of all learners, in their order. Otherwise like `add`."""

    def close(self) -> None:
        """End the waits of the others, and take part no more. Idempotent."""
