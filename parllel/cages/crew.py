"""All processes of a SynchronizedProcessCage: the workers, main's own share, and what they are asked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from parllel.arrays import Array
from parllel.cages.control import BY_PIPE, CALL, COLLECT_ALL, COLLECT_TRUNCATED, Control
from parllel.cages.participant import Participant
from parllel.cages.spaces import Spaces
from parllel.cages.worker_end import WorkerEnd
from parllel.errors import ClosedError, WorkerError, WorkerTimeoutError

POLL_S = 0.05  # how long a death may go unnoticed
CLOSE_S = 4.0  # environments that take longer to close are killed
# Of a failure in these the state of the environments is unknown, so all processes end.
_STEPS = ("decorrelate", "close")
_FOUND_DEAD = (WorkerError, BrokenPipeError, ConnectionResetError)  # by whoever writes to the pipe


class Crew:
    """The processes of a cage.

    Args:
        control: main's end of the words.
        timeout_s: how long workers may take for one answer.
        memory: to close at the end.

    Attributes:
        workers, main: to be filled by the cage; `main` is None if this process takes no part.
        broken: why nothing can be asked any more; None as long as all is well.
    """

    def __init__(self, control: Control, timeout_s: float, memory: Sequence[Array]) -> None:
        self.control = control
        self.workers: list[WorkerEnd] = []
        self.main: Participant | None = None
        self.broken: str | None = None
        self._timeout_s = timeout_s
        self._memory = memory
        self._next_look = 0.0
        self._calls = control.size.n_groups  # done words of calls follow those of the groups

    def await_spaces(self) -> Spaces:
        """Wait until all environments are made; return their spaces.

        Raises:
            ValueError: if they differ.
        """
        doing = "while its environments were made"
        found = [self._receive(w, 0, doing) for w in range(len(self.workers))]
        if self.main is not None:
            found.append(self.main.spaces)
        first: Spaces = found[0]
        for i, spaces in enumerate(found):
            if (spaces.observation, spaces.action) != (first.observation, first.action):
                error = ValueError(f"worker {i}: its spaces differ from those of worker 0")
                self.end(error)
                raise error
        for worker in self.workers:
            worker.child.name = worker.name = f"{worker.name[:-1]} of {first.name})"
        return first

    # ------------------------------------------------------------------ rows

    def take_part(self, operation: int, t: int, group: int) -> None:
        """Do main's own share of a row; whatever it raises ends the cage."""
        if self.main is not None:
            try:
                self.main.run(operation, group, t)
            except BaseException as error:
                if self.broken is None:
                    self.end(error)
                raise

    def after_row(self, group: int, rows: int) -> None:
        """Look now and then, in main's own part of a rollout, whether the workers live."""
        if time.monotonic() > self._next_look:
            self._check_workers(group, "during rollout")
            self._next_look = time.monotonic() + POLL_S

    def _check_workers(self, group: int, doing: str) -> None:
        """Raise what a worker left that has failed or died."""
        first = self.control.size.done_line(group)
        for w, worker in enumerate(self.workers):
            if self.control.wait.load(first + w) < 0 or worker.child.died():
                self._fail(w, doing)

    def await_done(self, group: int, number: int, doing: str) -> None:
        """Wait for all workers, and look now and then whether they live."""
        wait, n = self.control.wait, len(self.workers)
        first = self.control.size.done_line(group)
        deadline, told = time.monotonic() + self._timeout_s, self.control.rows_told(group)
        while True:
            found = wait.wait_each(first, n, number, POLL_S)
            if found == n:
                return
            self._check_workers(group, doing)
            now, rows = time.monotonic(), self.control.rows_told(group)
            if rows != told:  # a rollout that gets on has time for each row
                told, deadline = rows, now + self._timeout_s
            if now > deadline:
                error = _late(self.workers[found], self._timeout_s, doing)
                self.end(error)
                raise error

    # ------------------------------------------------------------------ calls

    def call(self, op: str, *args: Any) -> list[Any]:
        """Have all processes do something, and return their results, main's last."""
        return self.end_call(self.begin_call(op, args), op, args)

    def collect(self, truncated_only: bool) -> list[Any]:
        """Have all processes hand over what ended since the last call."""
        row = COLLECT_TRUNCATED if truncated_only else COLLECT_ALL
        number = self.control.command(CALL, self._calls, row)
        return self.end_call(number, "collect", (truncated_only,))

    def begin_call(self, op: str, args: tuple[Any, ...]) -> int:
        """Have the workers begin; return the number of the call."""
        number = self.control.command(CALL, self._calls, BY_PIPE)
        n, sent = len(self.workers), 0
        try:
            while sent < n:
                self._send(sent, number, op, args, f"before {op}")
                sent += 1
        except Exception:
            if self.broken is None:  # something that cannot be sent: nobody must wait for it
                for w in range(sent, n):
                    self._send(w, number, "nothing", (), f"before {op}")
                with contextlib.suppress(Exception):
                    self._gather(number, op)
            raise
        return number

    def _send(self, w: int, number: int, op: str, args: tuple[Any, ...], doing: str) -> None:
        """Send a call; the cage ends where a worker is found dead or does not read."""
        try:
            self.workers[w].send(number, op, args, self._timeout_s)
        except WorkerTimeoutError as error:
            self.end(error)
            raise
        except _FOUND_DEAD:
            self._fail(w, doing)
        except BaseException as error:
            if not isinstance(error, Exception):
                self.end(error)
            raise

    def end_call(self, number: int, op: str, args: tuple[Any, ...]) -> list[Any]:
        """Do main's part, wait for the workers, and return all results, main's last."""
        mine: list[Any] = []
        wrong: Exception | None = None
        if self.main is not None:
            try:
                mine.append(self.main.calls[op](*args))
            except Exception as error:
                wrong = error
                if op in _STEPS:
                    self.end(error)
                    raise
            except BaseException as error:
                self.end(error)
                raise
        results = self._gather(number, op)
        if wrong is not None:
            raise wrong
        return results + mine

    def _gather(self, number: int, op: str) -> list[Any]:
        """Return the answers of all workers; raises the first error once all are there."""
        doing = f"during {op}"
        try:
            self.await_done(self._calls, number, doing)
        except BaseException as error:
            # Interrupted, as by Ctrl-C. A worker may have a long answer, which nobody is going to read.
            if self.broken is None:
                self.end(error)
            raise
        results, errors = [], []
        for w in range(len(self.workers)):
            try:
                results.append(self._receive(w, number, doing))
            except Exception as error:
                if self.broken is not None:
                    raise
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def _receive(self, w: int, number: int, doing: str) -> Any:
        worker = self.workers[w]
        try:
            return worker.receive(number, self._timeout_s, doing, self.control.take_mail(w))
        except BaseException as error:
            if not worker.failed_well:
                self.end(error)
            raise

    # ------------------------------------------------------------------ the end

    def check_open(self, name: str) -> None:
        """Raise ClosedError if nothing can be asked any more."""
        if self.broken is not None:
            raise ClosedError(f"{name}: {self.broken}")

    def _fail(self, w: int, doing: str) -> NoReturn:
        """Raise what a worker left to say."""
        error = self.workers[w].last_words(doing)
        self.end(error)
        raise error

    def close_environments(self) -> list[Exception]:
        """Close them all while everyone is idle; return what went wrong."""
        errors: list[Exception] = []
        number = self.control.command(CALL, self._calls, BY_PIPE)
        timeout_s = min(self._timeout_s, CLOSE_S)
        steps: list[Callable[[], Any]] = [
            partial(worker.send, number, "close", (), timeout_s) for worker in self.workers
        ]
        if self.main is not None:
            steps.append(self.main.close)
        # All are closing by now, so the time is the same for all.
        deadline = time.monotonic() + timeout_s
        steps += [
            partial(_await_closed, worker, number, deadline, timeout_s) for worker in self.workers
        ]
        for step in steps:
            try:
                step()
            except Exception as error:
                errors.append(error)
        return errors

    def end(self, why: BaseException | None) -> None:
        """End all processes, whatever they are doing; `why` is for later calls."""
        self.broken = (
            "used after close()" if why is None else f"ended after {type(why).__name__}: {why}"
        )
        with contextlib.ExitStack() as stack:
            for array in self._memory:
                stack.callback(array.close)
            for worker in self.workers:
                stack.callback(worker.close)
            if self.main is not None:
                stack.enter_context(contextlib.suppress(Exception))
                self.main.close()


def _await_closed(worker: WorkerEnd, number: int, deadline: float, timeout_s: float) -> None:
    """Let a worker leave that has closed its environments; who fails or hangs is left to be killed."""
    try:
        worker.receive(number, max(deadline - time.monotonic(), 0.0), "during close")
    except WorkerTimeoutError:
        raise _late(worker, timeout_s, "during close") from None
    worker.child.end()


def _late(worker: WorkerEnd, timeout_s: float, doing: str) -> WorkerTimeoutError:
    return WorkerTimeoutError(
        f"{worker.name}: process {worker.child.pid} did not answer within {timeout_s:g} s {doing}"
    )
