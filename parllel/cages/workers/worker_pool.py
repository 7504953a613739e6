"""All processes of a SynchronizedProcessCage: the workers, main's own share, and what they are asked.

    main: WorkerPool                                         worker w: SynchronizedWorker
    begin_call    record of the call, go = n     -------->   wakes, and reads the record
                  request n over each pipe       -------->   reads it, if the record says BY_PIPE
    end_call      main's own share of the call               does its share meanwhile
    await_done    <------- done word of calls = n; FAILED if the worker is ending
    _receive      <------- ANSWER n or ERROR n               from the mail box, else over the pipe
    failure    <------- EXCEPTION                         over the pipe, only after FAILED
    Deaths        <------- process descriptor                from the system: it wrote no word before its end

Words are what main waits for. A process that was killed writes none, so no wait is longer than POLL_S, and
between two waits the pool asks the system whether all workers live.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from parllel.arrays.array import Array
from parllel.buffers.conversation import FIRST_WORDS, Conversation, reason_of
from parllel.cages.spaces import Spaces, check_alike
from parllel.cages.workers.control import (
    BY_PIPE,
    CALL,
    COLLECT_ALL,
    COLLECT_AT_ONCE,
    COLLECT_TRUNCATED,
    Control,
)
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.errors import ClosedError, WorkerTimeoutError, first_of
from parllel.system.counted_time import counted_s
from parllel.system.processes.owned import own
from parllel.system.processes.several import ExitPoller, Handle, await_any

POLL_S = 0.01  # how long a death may go unnoticed; looking more often would cost the row
SETTLE_S = 0.01  # what goes wrong in many workers at once does so within this time
RESCUE_S = 0.2  # for the workers that are well to hand over what they have collected
# After a failure in these the state of the environments is unknown, so all processes end.
_STEPS = ("decorrelate", "close")


class WorkerPool:
    """The processes of a cage.

    Args:
        control: main's end of the words.
        timeout_s: how long workers may take for one answer.
        shares: columns of each process in each group, relative to the cage's first; main's last.
        memory: to close at the end.

    Attributes:
        workers, main: to be filled by the cage; `main` is None if this process takes no part.
        broken: why nothing can be asked any more; None as long as all is well.
        rescued: after a failure, what each process had collected, main's last, as far as it could be had.
        unfinished: after a failure, the workers that did not finish the row and said nothing about it.
    """

    def __init__(
        self,
        control: Control,
        timeout_s: float,
        shares: Sequence[Sequence[slice]],
        memory: Sequence[Array],
    ) -> None:
        self.control = control
        self.shares = shares
        self.workers: list[Conversation] = []
        self.main: EnvironmentShare | None = None
        self.broken: str | None = None
        self.rescued: list[Any] | None = None
        self.unfinished: list[int] = []
        self._deaths: ExitPoller | None = None
        self._handles: Sequence[Handle] | None = None
        self._timeout_s = timeout_s
        self._memory = memory  # freed with the pool: the words and flags of a cage that has ended
        self._next_look = 0.0
        self._own_number = 0  # of the command of which main does its own share
        self._calls = control.size.n_groups  # done words of calls follow those of the groups
        own(self)

    def await_spaces(self, name: str) -> Spaces:
        """Wait until all environments of the cage of that name are made; return their spaces.

        Raises:
            ClosedError: if nothing can be asked any more.
            ValueError: if they differ.
        """
        self.check_open(name)
        try:
            made = _await_made(self.workers, self._timeout_s)
            if self.main is not None:
                made.append(self.main.made)
            first, expected = made[0]
            for index, came in made:
                check_alike(came, expected, index, first)
        except BaseException as error:
            self.end(error)
            raise
        # Each worker has made its own waits, so names that only a starting process needs can go.
        self.control.wait.settle()
        # Only now is it known what the environments are called. The name ends with a bracket, which moves.
        for worker in self.workers:
            worker.child.name = f"{worker.child.name[:-1]} of {expected.name})"
        return expected

    # ------------------------------------------------------------------ rows

    def take_part(self, operation: int, t: int, group: int, number: int) -> None:
        """Do main's own share of a row, command `number`; whatever it raises ends the cage."""
        self._own_number = number
        if self.main is not None:
            try:
                self.main.run(operation, group, t)
            except BaseException as error:
                # After a worker's failure, which `after_row` notices, everything has been ended already.
                if self.broken is None:
                    self._end_failed(error, set())
                raise

    def after_row(self, group: int, rows: int) -> None:
        """Look now and then, in main's own part of a rollout, whether the workers live."""
        # A rollout is as long as a batch: without this a death would be noticed only at its end.
        if time.monotonic() > self._next_look:
            # Not the last command of all: that may be another group's.
            self._check_workers(group, self._own_number, "during rollout")
            self._next_look = time.monotonic() + POLL_S

    def done(self, group: int, number: int) -> bool:
        """Return at once whether all workers have finished a command, or one has failed or died."""
        # The system is asked only where words leave it open.
        return self.broken is not None or self._says(group, number) or self._died()

    def handles(self, group: int, number: int) -> Sequence[Handle]:
        """Return what is ready when `done` is True, if not earlier; empty if it is now, or nothing is."""
        if self.broken is not None:
            return ()
        if self._handles is None:
            wakeup = self.control.listen()
            sentinels = [worker.child.sentinel for worker in self.workers]
            self._handles = () if wakeup is None else (wakeup, *sentinels)
        # After `listen`: a word that is posted from here on wakes.
        return () if self._says(group, number) else self._handles

    def await_done(self, group: int, number: int, doing: str) -> None:
        """Wait for all workers, and look now and then whether they live."""
        wait, n = self.control.wait, len(self.workers)
        first = self.control.size.done_line(group)
        left_s, done = self._timeout_s, self.control.rows_reported(group)
        while True:
            # Before each wait: a worker that is gone will never write the word.
            self._check_workers(group, number, doing)
            began = time.monotonic()
            if wait.wait_each(first, n, number, POLL_S) == n:
                return
            left_s -= counted_s(began, POLL_S)
            rows = self.control.rows_reported(group)
            if rows != done:  # the time-out is for one row, so progress restarts it
                done, left_s = rows, self._timeout_s
            if left_s <= 0:
                # Once more: a death in the last slice explains more than that the time is up.
                self._check_workers(group, number, doing)
                # None is left if the last one finished after the wait: the next look finds that.
                self.unfinished = self._busy(group, number)
                late = [
                    self.workers[w].child.late_error(self._timeout_s, doing)
                    for w in self.unfinished
                ]
                if late:
                    error = first_of(late)
                    self._end_failed(error, set(self.unfinished))
                    raise error

    def _check_workers(self, group: int, number: int, doing: str) -> None:
        """Raise what workers left to say that have failed or died."""
        # The words as well as deaths: a worker that failed may take long to send why, and to close.
        if self._died() or min(self.control.done_words(group)) < 0:
            self._fail(group, number, doing, set())

    def _died(self) -> bool:
        """Return whether a worker has ended."""
        # Made at the first look, when all workers have been started.
        if self._deaths is None:
            self._deaths = ExitPoller([worker.child for worker in self.workers])
        return self._deaths.any()

    def _says(self, group: int, number: int) -> bool:
        """Return whether the words of all workers are a number, or one says that its worker has failed."""
        words = self.control.done_words(group)
        return words.count(number) == len(words) or min(words) < 0

    def _busy(self, group: int, number: int) -> list[int]:
        """Return the workers that have neither finished a command nor said that they cannot."""
        return [w for w, word in enumerate(self.control.done_words(group)) if 0 <= word != number]

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
        # The command before the requests: a worker reads its pipe only after it has seen the command, and
        # a request that is longer than the pipe holds is sent only as far as the worker reads.
        number = self.control.command(CALL, self._calls, BY_PIPE)
        n, sent = len(self.workers), 0
        try:
            while sent < n:
                self._send(sent, number, op, args)
                sent += 1
        except Exception:
            # The request cannot be pickled. But the command said that one comes, so the workers that got
            # none need another; and all their answers are to be read before the next call.
            if self.broken is None:
                for w in range(sent, n):
                    self._send(w, number, "nothing", ())
                with contextlib.suppress(Exception):
                    self._gather(number, op)
            raise
        return number

    def _send(self, w: int, number: int, op: str, args: tuple[Any, ...]) -> None:
        """Send a call; the cage ends where a worker is found dead or does not read."""
        worker = self.workers[w]
        try:
            worker.ask(op, *args, number=number)
        except Exception as error:
            if isinstance(error, WorkerTimeoutError):
                self.end(error)  # half a message may be in the pipe, which cannot be used any more
            elif worker.broken is not None:
                self._fail(self._calls, number, f"before {op}", {w})
            raise
        except BaseException as error:
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
                # Raised once the workers have answered, else the next call would find their answers.
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
            # Interrupted, as by Ctrl-C. A worker with a long answer would wait for ever to be read.
            if self.broken is None:
                self.end(error)
            raise
        results, errors = [], []
        # Also after an error: an answer that is left unread would be in the way of the next.
        for w in range(len(self.workers)):
            try:
                results.append(self._receive(w, number, doing))
            except Exception as error:
                if self.broken is not None:
                    raise
                errors.append(error)
        if errors:
            raise first_of(errors)
        return results

    def _receive(self, w: int, number: int, doing: str) -> Any:
        worker = self.workers[w]
        try:
            # The mail box first: only if it is empty does the answer come over the pipe.
            return worker.answer(number, doing, mail=self.control.take_answer(w))
        except BaseException as error:
            if worker.broken is not None or not isinstance(error, Exception):
                self.end(error)
            raise

    # ------------------------------------------------------------------ the end

    def disown(self, why: str) -> None:
        """Refuse everything, in a forked copy of the process whose workers they are."""
        # What failed processes left is the owner's to collect.
        self.rescued = None
        if self.broken is None:
            self.broken = why

    def check_open(self, name: str) -> None:
        """Raise ClosedError if nothing can be asked any more."""
        if self.broken is not None:
            raise ClosedError(f"{name}: {self.broken}")

    def _fail(self, group: int, number: int, doing: str, failed: set[int]) -> NoReturn:
        """Raise what workers left to say, once the others have had an instant to fail as well."""
        load, first = self.control.wait.load, self.control.size.done_line(group)
        deadline = time.monotonic() + SETTLE_S
        while True:
            dead = {w for w, worker in enumerate(self.workers) if worker.child.died()}
            failed |= dead | {w for w in range(len(self.workers)) if load(first + w) < 0}
            self.unfinished = self._busy(group, number)
            busy = [w for w in self.unfinished if w not in failed]
            if not busy or time.monotonic() > deadline:
                break
            # On a word, which ends the wait as soon as that worker finishes or fails.
            self.control.wait.wait(first + busy[0], load(first + busy[0]), SETTLE_S / 4)
        # Only now: a worker posts FAILED first and then sends why, and one that died had sent it before.
        error = first_of([self.workers[w].failure(doing) for w in sorted(failed)])
        self._end_failed(error, failed.union(busy))
        raise error

    def _end_failed(self, error: BaseException, silent: set[int]) -> None:
        """End the processes, having taken what they had collected; those in `silent` would not answer."""
        if self.broken is None and isinstance(error, Exception):  # Ctrl-C is to end at once
            self.rescued = self._rescue(silent)
        self.end(error)

    def _rescue(self, silent: set[int]) -> list[Any]:
        nothing: list[Any] = [([], [])] * self._calls  # for each group
        rescued: list[Any] = []
        # One deadline for all: many workers that hang must not take many times as long.
        line, deadline = self.control.size.done_line(self._calls), time.monotonic() + RESCUE_S
        number = self.control.command(CALL, self._calls, COLLECT_AT_ONCE)
        for w, worker in enumerate(self.workers):
            found = worker.pending_results  # of one that failed, which sent it after the exception
            # What goes wrong here would hide the failure that is to be raised.
            with contextlib.suppress(Exception):
                left_s = deadline - time.monotonic()
                if w not in silent and self.control.wait.wait_each(line + w, 1, number, left_s):
                    mail = self.control.take_answer(w)
                    found = worker.answer(number, "during collect", RESCUE_S, mail=mail)
            rescued.append(nothing if found is None else found)
        if self.main is not None:
            rescued.append(self.main.collect(False, True))
        return rescued

    def close_environments(self) -> list[Exception]:
        """Close them all while all processes are idle; return what went wrong."""
        errors: list[Exception] = []
        number = self.control.command(CALL, self._calls, BY_PIPE)
        for worker in self.workers:  # all are closing before any is waited for
            worker.begin_close(number)
        steps: list[Callable[[], Any]] = [worker.close for worker in self.workers]
        if self.main is not None:
            steps.insert(0, self.main.close)  # first, while the workers close theirs
        for step in steps:
            try:
                step()
            except Exception as error:
                errors.append(error)
        return errors

    def end(self, why: BaseException | None) -> None:
        """End all processes, whatever they are doing; `why` is for later calls."""
        # First, so that nothing is asked of it any more, even if what follows is interrupted.
        self.broken = reason_of(why)
        # Goes backwards: main's environments, the workers, and the memory when no process is left to use it.
        with contextlib.ExitStack() as stack:
            for array in self._memory:
                stack.callback(array.close)
            stack.callback(self.control.close)
            for worker in self.workers:
                stack.callback(worker.close)
            if self.main is not None:
                stack.enter_context(contextlib.suppress(Exception))
                self.main.close()


def _await_made(workers: Sequence[Conversation], timeout_s: float) -> list[tuple[int, Spaces]]:
    """Return what the workers say at their start; after a failure, do not wait for the rest."""
    doing = "while its environments were made"
    made: dict[int, tuple[int, Spaces]] = {}
    errors: list[Exception] = []
    awaited = {worker.child: w for w, worker in enumerate(workers)}
    left_s = timeout_s
    while awaited:
        # For any of them, not one after the other: it may be the last that fails at once.
        heard, left_s = await_any(list(awaited), left_s)
        for child in heard:
            w = awaited.pop(child)
            try:
                made[w] = workers[w].answer(FIRST_WORDS, doing)
            except Exception as error:
                errors.append(error)
                # The others get an instant to fail as well, so that the error can say how many did.
                left_s = min(left_s, SETTLE_S)
        if not heard:
            # After an error the others had no time, so they are not to blame for being late.
            errors = errors or [child.late_error(timeout_s, doing) for child in awaited]
            break
    if errors:
        raise first_of(errors)
    return [made[w] for w in range(len(workers))]
