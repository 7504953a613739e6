"""Several processes that learn together, wherever they run: the part of the first one.

    first learner: StartedLearners                 another learner: learner_process.py
    launch   -- build(config) ------------------>  the same build function, with learners of another rank
             <- its part of the batch -----------
    add, gather  <------------- Exchange --------------->  add, gather
    ask      -- batch, learn, state ... -------->  LearnerProcess.answer
    answers  <------- answers, exceptions -------

While it waits for the others, the first learner checks that they are alive, and finds out who died, and how.
One that hangs is found by the time-out. After any failure all of them end, as their weights may differ.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import torch
from numpy.typing import NDArray

from parllel.algos.learner_exchange import LearnerLostError
from parllel.algos.learner_group import Exchange, LearnerGroup
from parllel.errors import ClosedError, WorkerError, WorkerTimeoutError
from parllel.seeding import Seeds
from parllel.torch.learner_process import own_rank
from parllel.types import BatchSpec, Closeable

_POLL_S = 0.01


class LearnerHandle(Protocol):
    """The first learner's end of its conversation with another one.

    Attributes:
        name: for messages; begins with "learner {rank}".
    """

    name: str

    def ask(self, op: str, *args: Any) -> None:
        """Send a request. Raises WorkerError, or the exception that ended the learner."""

    def answer(self) -> Any:
        """Return the answer to the last request. Raises as `ask`."""

    def lost(self) -> bool:
        """Return whether it has died, raised an exception or not answered in time."""

    def failure(self) -> BaseException:
        """Return why it is lost."""

    def begin_close(self) -> None:
        """Ask it to close and end. Never raises."""

    def close(self) -> None:
        """Wait for its end, and kill it. Raises the exception of closing. Idempotent."""

    def kill(self) -> None:
        """Kill it. Idempotent."""


class StartedLearners(LearnerGroup, Closeable):
    """Learners that the first one starts and ends. Subclasses decide where, and how arrays are exchanged.

    Args:
        n: number of learners, this process included.
        build: the build function that makes this object. It is pickled by cloudpickle.
        config: its config.
        timeout_s: time limit for building, for a batch, and for each exchange.

    Attributes:
        n: number of learners.
        rank: number of this learner; 0 is the first.
        build, config, timeout_s: as given.
        others: the learners that were launched; `launch` appends to it.
        last_words_s: time to find out why a learner has gone.

    Raises:
        ValueError: if `n` is less than 1 or `timeout_s` is not positive.
        TypeError: if `n` is not an int.
    """

    last_words_s = 5.0

    def __init__(self, n: int, build: Callable[..., Any], config: Any, *, timeout_s: float) -> None:
        who = type(self).__name__
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"{who}: n: expected an int, got {n!r}")
        if n < 1:
            raise ValueError(f"{who}: n: expected at least 1, got {n}")
        if not timeout_s > 0:
            raise ValueError(
                f"{who}: timeout_s: expected a positive number of seconds, got {timeout_s}"
            )
        self.n, self.rank = n, own_rank() if n > 1 else 0
        self.build, self.config, self.timeout_s = build, config, timeout_s
        self.others: list[LearnerHandle] = []
        self._doing = ""
        self._folder: Path | None = None
        self._exchange: Exchange | None = None
        self._ended = False
        self._failure: BaseException | None = None
        self._threads = 0  # of PyTorch, before the run set their number

    @abstractmethod
    def cores(self) -> int:
        """Return the number of cores that each learner may use."""

    @abstractmethod
    def make_exchange(self) -> Exchange:
        """Return how arrays are exchanged, which is opened once all learners have built their runs."""

    @abstractmethod
    def launch(self, exchange: Any, folder: Path, threads: int) -> None:
        """Start the other learners, and append them to `others`.

        exchange: from `make_exchange`.
        folder: for what they write; removed at the end.
        """

    @overload
    def share_of(self, batch: BatchSpec) -> BatchSpec: ...

    @overload
    def share_of(self, batch: int) -> int: ...

    def share_of(self, batch: BatchSpec | int) -> BatchSpec | int:
        """Return the share of one learner of a batch: of a BatchSpec, an equal number of columns.

        batch: what all learners collect, or the number of transitions that all draw from their replays.

        Raises:
            ValueError: if it cannot be divided equally.
        """
        who = type(self).__name__
        if isinstance(batch, int):
            if batch % self.n:
                raise ValueError(
                    f"{who}: expected a batch size that {self.n} learners can share equally, got {batch}"
                )
            return batch // self.n
        batch_spec = batch
        if batch_spec.B % self.n:
            raise ValueError(
                f"{who}: expected a number of environments that {self.n} learners can share equally, got "
                f"B={batch_spec.B}"
            )
        return BatchSpec(batch_spec.T, batch_spec.B // self.n)

    def seeds(self, entropy: int | None) -> Seeds:
        """Return the Seeds of this learner, different for each rank; for the first, Seeds(entropy)."""
        seeds = Seeds(entropy)
        return Seeds(seeds.integer(f"learner {self.rank}") if self.rank else entropy)

    # ------------------------------------------------------------------ exchange

    def add(self, array: NDArray[Any]) -> None:
        """Replace a contiguous array, in place, by the sum over all learners. See `LearnerGroup.add`."""
        with self._explained(LearnerLostError):
            self._joined().add(array)

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays of all learners, in their order. See `LearnerGroup.gather`."""
        with self._explained(LearnerLostError):
            return self._joined().gather(array)

    def _joined(self) -> Exchange:
        self._check_failure()
        if self._exchange is None:
            raise ClosedError(
                f"{type(self).__name__}: used before the run has started, or after its end"
            )
        return self._exchange

    def join(self, exchange: Exchange, threads: int) -> None:
        """Take part in the exchanges. All learners must call it.

        threads: number of PyTorch's threads from now on, until `close`.
        """
        self._threads = torch.get_num_threads()
        torch.set_num_threads(threads)
        # Before it is opened, so that it is closed whatever happens.
        self._exchange = exchange
        with self._explained(LearnerLostError):
            exchange.open(self.rank, self.timeout_s, self._check_alive)

    def _check_alive(self) -> None:
        if any(other.lost() for other in self.others):
            raise LearnerLostError("a learner died")

    # ------------------------------------------------------------------ the other learners

    def start(self, folder: Path | None) -> list[Any]:
        """Start the other learners. See `LearnerGroup.start`.

        Raises:
            ClosedError: after `close`, or when called twice.
            Exception: any error of the build function in one of them, or the error that ended them before.
        """
        self._check_failure()
        if self._ended or self.others:
            raise ClosedError(f"{type(self).__name__}: used after close(), or started twice")
        self._folder = _empty_folder(folder)
        # More threads than cores would wait for each other.
        threads = max(1, min(torch.get_num_threads(), self.cores()))
        exchange = self._exchange = self.make_exchange()
        self.launch(exchange, self._folder, threads)
        # All at once, as each takes seconds to import PyTorch.
        self.ask("build")
        parts = self.answers()
        self.ask("join")
        self.join(exchange, threads)
        self.answers()
        exchange.settle()
        return parts

    def ask(self, op: str, *args: Any, each: Sequence[Any] = ()) -> None:
        """Send a request to all other learners."""
        self._check_failure()
        self._doing = f"during {op}"
        with self._explained(WorkerError):
            for i, other in enumerate(self.others):
                other.ask(op, *args, *each[i : i + 1])

    def answers(self) -> list[Any]:
        """Return the answers of the other learners to the last request, in their order."""
        with self._explained(WorkerError):
            return [other.answer() for other in self.others]

    @contextlib.contextmanager
    def _explained(self, *kinds: type[Exception]) -> Iterator[None]:
        """Context manager that replaces errors of these kinds by the error of the learner that was lost."""
        try:
            yield
            return
        except kinds as error:
            lost = error
        # Outside of the handler, so that the cause of the other learner's error is kept.
        raise lost if self.rank else self._why_lost(lost)

    def _check_failure(self) -> None:
        # Again, as who got it first may have gone on, as after a checkpoint that was not written.
        if self._failure is not None:
            raise self._failure

    def _why_lost(self, lost: Exception) -> BaseException:
        """Return the error of the learner that was lost first, and end all of them.

        lost: how this process has noticed it.
        """
        self._failure = self._find_failure(lost)
        self._end()
        return self._failure

    def _find_failure(self, lost: Exception) -> BaseException:
        waiting = list(self.others)
        deadline = time.monotonic() + self.last_words_s
        errors: list[BaseException] = []
        causes: list[BaseException] = []
        # Those that only lost another learner end as well. The one that they lost may be slower to end.
        while waiting and time.monotonic() < deadline:
            for other in list(waiting):
                if other.lost():
                    waiting.remove(other)
                    errors.append(other.failure())
            causes = [error for error in errors if not isinstance(error, LearnerLostError)]
            if causes:
                break
            time.sleep(_POLL_S)
        if causes:
            return causes[0]
        silent = [other.name for other in waiting] or ["learner 0"]
        found = WorkerTimeoutError(
            f"{' and '.join(silent)} did not answer within {self.timeout_s:g} s {self._doing}"
        )
        found.__cause__ = lost
        return found

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """End the other learners. Idempotent."""
        # First: those that wait for this learner get an error, and end.
        self._leave()
        for other in self.others:
            other.begin_close()
        for other in self.others:
            other.close()
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._leave()
        for other in self.others:
            other.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _leave(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()
        threads, self._threads = self._threads, 0
        if threads:
            torch.set_num_threads(threads)


def _empty_folder(folder: Path | None) -> Path:
    """Return a folder for what the other learners write."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="parllel-learners-"))
    # In the folder of the run, where a resumed run finds what a killed one has left.
    found = folder / "learners"
    shutil.rmtree(found, ignore_errors=True)
    return found
