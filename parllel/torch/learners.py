"""Several processes that learn together, on one machine.

    first learner: Learners                        another learner: learner_process.py
    start    -- build(config) ------------------>  the same build function, with Learners of another rank
             <- its part of the batch -----------
    add, gather  <------- LearnerExchange, shared memory ------->  add, gather
    ask      -- batch, learn, state ... -------->  OtherLearner.answer
    answers  <------- answers, exceptions -------
             -- liveness pipe hangs up --------->  killed with its process group

While it waits for the others, the first learner checks that they are alive, and finds out who died, and how.
The others are killed with the first. One that hangs is found by the time-out. After any failure all of them
end, as their weights may differ.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from numpy.typing import NDArray

from parllel.algos.learner_exchange import LearnerExchange, LearnerLostError
from parllel.algos.learner_group import LearnerGroup
from parllel.buffers.conversation import Conversation
from parllel.cages.env_registry import RegistryTarget
from parllel.errors import ClosedError, WorkerError, WorkerTimeoutError
from parllel.seeding import Seeds
from parllel.system.processes.child import Child
from parllel.system.processes.cores import usable_cores
from parllel.torch.learner_process import Place, own_rank, serve
from parllel.types import BatchSpec, Closeable

# Time to find out why a learner has gone: it sends its exception before it ends.
_LAST_WORDS_S = 5.0
_POLL_S = 0.01


class Learners(LearnerGroup, Closeable):
    """Processes that learn together, each from its share of the environments; see docs/learners.md.

    Make it in the build function of a run, and pass it to the runner::

        def build(config, stack, folder, console):
            learners = stack.enter_context(Learners(config.learners, build, config))
            seeds = learners.seeds(config.seed)
            batch_spec = learners.share_of(BatchSpec(config.T, config.B))
            ...
            return OnPolicyRunner(batch_spec, sampler, PPO(agent, ...), learners=learners, ...)

    The other processes start when the run does. They call the same function, in which `rank` differs. The
    first learner sends them its weights, so all begin with equal ones. With n = 1 nothing is started.

    Args:
        n: number of learners, this process included.
        build: the build function that makes this object. It is pickled by cloudpickle.
        config: its config.
        timeout_s: time limit for building, for a batch, and for each exchange. Learners that die are noticed
            at once.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.

    Attributes:
        n: number of learners.
        rank: number of this learner; 0 is the first.

    Raises:
        ValueError: if `n` is less than 1 or `timeout_s` is not positive.
        TypeError: if `n` is not an int.
    """

    def __init__(
        self,
        n: int,
        build: Callable[..., Any],
        config: Any,
        *,
        timeout_s: float = 300.0,
        start_method: str | None = None,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"Learners: n: expected an int, got {n!r}")
        if n < 1:
            raise ValueError(f"Learners: n: expected at least 1, got {n}")
        if not timeout_s > 0:
            raise ValueError(
                f"Learners: timeout_s: expected a positive number of seconds, got {timeout_s}"
            )
        self.n, self.rank = n, 0
        self._timeout_s = timeout_s
        self._build, self._config, self._start_method = build, config, start_method
        self._conversations: list[Conversation] = []
        self._numbers: list[int] = []
        self._doing = ""
        self._folder: Path | None = None
        self._exchange: LearnerExchange | None = None
        self._ended = False
        self._failure: BaseException | None = None
        self._threads = 0  # of PyTorch, before the learners shared the cores
        if n > 1:
            self.rank = own_rank()

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
        if isinstance(batch, int):
            if batch % self.n:
                raise ValueError(
                    f"Learners: expected a batch size that {self.n} learners can share equally, got {batch}"
                )
            return batch // self.n
        batch_spec = batch
        if batch_spec.B % self.n:
            raise ValueError(
                f"Learners: expected a number of environments that {self.n} learners can share equally, got "
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

    def _joined(self) -> LearnerExchange:
        self._check_failure()
        if self._exchange is None:
            raise ClosedError("Learners: used before the run has started, or after its end")
        return self._exchange

    def join(self, exchange: LearnerExchange, threads: int) -> None:
        """Take part in the exchanges. All learners must call it.

        threads: number of PyTorch's threads from now on, until `close`.
        """
        self._threads = torch.get_num_threads()
        torch.set_num_threads(threads)
        exchange.open(self.rank, self._timeout_s, self._check_alive)
        self._exchange = exchange

    def _check_alive(self) -> None:
        if any(conversation.child.died() for conversation in self._conversations):
            raise LearnerLostError("a learner died")

    # ------------------------------------------------------------------ the other learners

    def start(self, folder: Path | None) -> list[Any]:
        """Start the other learners. See `LearnerGroup.start`.

        Raises:
            ClosedError: after `close`, or when called twice.
            Exception: any error of the build function in one of them, or the error that ended them before.
        """
        self._check_failure()
        if self._ended or self._conversations:
            raise ClosedError("Learners: used after close(), or started twice")
        self._folder = _empty_folder(folder)
        # More threads than cores would wait for each other.
        threads = max(1, min(torch.get_num_threads(), usable_cores() // self.n))
        exchange = LearnerExchange(self.n)
        self.join(exchange, threads)
        for rank in range(1, self.n):
            child = Child(
                # The environments that are registered here, too.
                RegistryTarget(serve),
                (Place(rank, str(self._folder), threads), self._build, self._config),
                inherited=exchange,
                name=f"learner {rank}",
                start_method=self._start_method,
                start_timeout_s=self._timeout_s,
            )
            self._conversations.append(Conversation(child, timeout_s=self._timeout_s))
        # All at once, as each takes seconds to import PyTorch.
        self.ask("build")
        parts = self.answers()
        exchange.settle()
        return parts

    def ask(self, op: str, *args: Any, each: Sequence[Any] = ()) -> None:
        """Send a request to all other learners."""
        self._check_failure()
        self._doing = f"during {op}"
        with self._explained(WorkerError):
            self._numbers = [
                conversation.ask(op, *args, *each[i : i + 1], doing=f"before {op}")
                for i, conversation in enumerate(self._conversations)
            ]

    def answers(self) -> list[Any]:
        """Return the answers of the other learners to the last request, in their order."""
        pairs = zip(self._conversations, self._numbers, strict=True)
        with self._explained(WorkerError):
            return [conversation.answer(number, self._doing) for conversation, number in pairs]

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
        waiting = list(self._conversations)
        deadline = time.monotonic() + _LAST_WORDS_S
        errors: list[BaseException] = []
        causes: list[BaseException] = []
        # Those that only lost another learner end as well. The one that they lost may be slower to end.
        while waiting and time.monotonic() < deadline:
            for conversation in list(waiting):
                if conversation.broken is None and not conversation.child.died():
                    continue
                waiting.remove(conversation)
                errors.append(conversation.failure(self._doing))
            causes = [error for error in errors if not isinstance(error, LearnerLostError)]
            if causes:
                break
            time.sleep(_POLL_S)
        if causes:
            return causes[0]
        silent = [conversation.child.name for conversation in waiting] or ["learner 0"]
        found = WorkerTimeoutError(
            f"{' and '.join(silent)} did not answer within {self._timeout_s:g} s {self._doing}"
        )
        found.__cause__ = lost
        return found

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """End the other learners. Idempotent."""
        # First: those that wait for this learner get an error, and end.
        self._leave()
        for conversation in self._conversations:
            conversation.begin_close()
        for conversation in self._conversations:
            conversation.close(forgive=True)
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._leave()
        for conversation in self._conversations:
            conversation.child.kill()
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
