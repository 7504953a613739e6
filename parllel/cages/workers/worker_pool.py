"""The processes of a SynchronizedProcessCage: workers, main's own share, calls to all of them.

    main: WorkerPool                                         worker w: SynchronizedWorker
    begin_call    record of the call, go = n     -------->   wakes, and reads the record
                  request n over each pipe       -------->   reads it, if the record says BY_PIPE
    end_call      main's own share of the call               does its share meanwhile
    await_done    <------- done word of calls = n; FAILED if the worker is ending
    _receive      <------- ANSWER n or ERROR n               from the mail box, else over the pipe
    failure       <------- EXCEPTION                         over the pipe, only after FAILED
    ExitPoller    <------- process descriptor                from the system, for a worker that was killed

Main waits for words. A killed process writes none, so each wait lasts at most POLL_S, and between waits the
pool asks the system whether all workers live.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from parllel.arrays.array import Array
from parllel.buffers.conversation import FIRST_WORDS, Conversation, reason_of
from parllel.cages.spaces import Spaces, check_alike
from parllel.cages.workers.control import (
    BY_PIPE,
    CALL,
    COLLECT_ALL,
    COLLECT_AT_ONCE,
    COLLECT_TRUNCATED,
    FAILED,
    LOST,
    Control,
)
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.errors import ClosedError, WorkerTimeoutError, first_of
from parllel.system.counted_time import counted_s
from parllel.system.processes.owned import own
from parllel.system.processes.several import ExitPoller, Handle, await_any

POLL_S = 0.01  # how long a death may go unnoticed; polling more often would slow down rows
SETTLE_S = 0.01  # a failure common to many workers shows in all of them within this time
RESCUE_S = 0.2  # for healthy workers to deliver their results after another has failed
# After an error in these the state of the environments is unknown, so all processes end.
_STEPS = ("decorrelate", "close")


class WorkerPool:
    """The processes of a cage.

    Args:
        control: the main process's access to the control lines.
        timeout_s: time limit for one answer of the workers.
        shares: columns of each process in each group, relative to the cage's first. The main
            process is last.
        memory: arrays to close at the end.

    Attributes:
        workers, main: the workers and the main process's share, set by the cage. `main` is None if
            this process does not participate.
        broken: why the pool can no longer be used; None while it can.
        rescued: after a failure, the uncollected results of each process, main's last, where available.
        unfinished: after a failure, the workers that neither finished the row nor reported a failure.
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
        # Number, name and arguments of the last call until its end; no arguments for a command without a
        # request over the pipe.
        self.call_in_progress: tuple[int, str, tuple[Any, ...] | None] | None = None
        # Set by a cage with restarts: replaces dead workers, and records the rows that were lost with them.
        self.recover: Callable[[dict[int, BaseException]], bool] = _recover_none
        self.take_losses: Callable[[int, int], None] = _lose_nothing
        self._deaths: ExitPoller | None = None
        self._handles: Sequence[Handle] | None = None
        self._timeout_s = timeout_s
        self._memory = memory  # words and flags, freed when the pool ends
        self._next_look = 0.0
        self._own_number = 0  # command of which main is doing its own share
        self._calls = control.size.n_groups  # calls count as one more group
        own(self)

    def await_spaces(self, name: str) -> Spaces:
        """Wait until all environments are made; return their spaces.

        name: name of the cage, for messages.

        Raises:
            ClosedError: if the pool can no longer be used.
            ValueError: if the spaces differ.
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
        # All workers have made their waits, so names that only starting processes need can be removed.
        self.control.wait.settle()
        # The environments' name is known only now. It is inserted before the closing bracket.
        for worker in self.workers:
            worker.child.name = f"{worker.child.name[:-1]} of {expected.name})"
        return expected

    # ------------------------------------------------------------------ rows

    def take_part(self, operation: int, t: int, group: int, number: int) -> None:
        """Step the main process's share of a row, for command `number`. Any exception ends the cage."""
        self._own_number = number
        if self.main is not None:
            try:
                self.main.run(operation, group, t)
            except BaseException as error:
                self.end_part(error, group, number)
                raise

    def end_part(self, error: BaseException, group: int, number: int) -> None:
        """End the cage after an exception in the main process's share of a row."""
        # If `after_row` noticed a worker's failure, everything has already ended.
        if self.broken is None:
            self._end_failed(error, set(), (group, number))

    def set_worker(self, w: int, worker: Conversation) -> None:
        """Put a worker in the place of another, which has ended."""
        self.workers[w] = worker
        self._deaths = self._handles = None

    def done_word(self, group: int, w: int) -> int:
        """Return a worker's done word for a group, or for calls."""
        return self.control.wait.load(self.control.size.done_line(group, w))

    def after_row(self, group: int, rows: int) -> None:
        """Poll worker liveness while the main process runs its own share of a rollout."""
        # A rollout takes as long as a batch: without this a death would be noticed only at its end.
        if time.monotonic() > self._next_look:
            # Not the latest command, which may be another group's.
            self._check_workers(group, self._own_number, "during rollout")
            self._next_look = time.monotonic() + POLL_S

    def done(self, group: int, number: int) -> bool:
        """Return whether all workers have finished a command, or one has failed or died. Does not wait."""
        # The system is asked only if the words do not decide it.
        return self.broken is not None or self._says(group, number) or self._died()

    def handles(self, group: int, number: int) -> Sequence[Handle]:
        """Return handles that become ready no later than `done`; empty if done, or without a pipe."""
        if self.broken is not None:
            return ()
        if self._handles is None:
            wakeup = self.control.listen()
            sentinels = [worker.child.sentinel for worker in self.workers]
            self._handles = () if wakeup is None else (wakeup, *sentinels)
        # Checked after `listen`: any word posted from here on also writes a byte.
        return () if self._says(group, number) else self._handles

    def await_done(self, group: int, number: int, doing: str) -> None:
        """Wait for all workers, polling their liveness. Raises a worker's failure, or WorkerTimeoutError."""
        wait, n = self.control.wait, len(self.workers)
        first = self.control.size.done_line(group)
        left_s, done = self._timeout_s, self.control.rows_reported(group)
        while True:
            # Before each wait, as a dead worker never writes its word.
            self._check_workers(group, number, doing)
            began = time.monotonic()
            if wait.wait_each(first, n, number, POLL_S) == n:
                return
            left_s -= counted_s(began, POLL_S)
            rows = self.control.rows_reported(group)
            if rows != done:  # the time-out is per row of a rollout, so progress restarts it
                done, left_s = rows, self._timeout_s
            if left_s <= 0:
                # Once more: a death in the last slice is a better explanation than a time-out.
                self._check_workers(group, number, doing)
                # Empty if the last one finished just after the wait; the next round then returns.
                self.unfinished = self._busy(group, number)
                late: dict[int, BaseException] = {
                    w: self.workers[w].child.late_error(self._timeout_s, doing)
                    for w in self.unfinished
                }
                if late and self._recovered(late):
                    left_s = self._timeout_s
                elif late:
                    error = first_of(list(late.values()))
                    self._end_failed(error, set(late))
                    raise error

    def _check_workers(self, group: int, number: int, doing: str) -> None:
        """Raise the error of workers that have failed or died."""
        # Checks words as well as deaths: a failed worker may take long to send its error and to close.
        words = self.control.done_words(group)
        if LOST in words:
            self.take_losses(group, number)
        if self._died() or FAILED in words:
            self._fail(group, number, doing, set(), recover=True)

    def _recovered(self, errors: dict[int, BaseException]) -> bool:
        """Return whether the workers with these errors were replaced."""
        try:
            return self.recover(errors)
        except BaseException as error:
            self._end_failed(error, set(errors))
            raise

    def find_dead(self) -> None:
        """Replace workers that have died, while no command is in progress. Raises the error of any other."""
        dead = [w for w, worker in enumerate(self.workers) if worker.child.died()]
        errors = {w: self.workers[w].failure("between two batches") for w in dead}
        if errors and not self._recovered(errors):
            error = first_of(list(errors.values()))
            self._end_failed(error, set(errors))
            raise error

    def _died(self) -> bool:
        """Return whether a worker has ended."""
        # Made on first use, when all workers have been started.
        if self._deaths is None:
            self._deaths = ExitPoller([worker.child for worker in self.workers])
        return self._deaths.any()

    def _says(self, group: int, number: int) -> bool:
        """Return whether the done words of all workers equal `number`, or one is FAILED."""
        words = self.control.done_words(group)
        return words.count(number) == len(words) or min(words) < 0

    def _busy(self, group: int, number: int) -> list[int]:
        """Return the workers that have neither finished a command nor failed."""
        return [w for w, word in enumerate(self.control.done_words(group)) if 0 <= word != number]

    # ------------------------------------------------------------------ calls

    def call(self, op: str, *args: Any) -> list[Any]:
        """Run a call in all processes and return their results, the main process's last."""
        return self.end_call(self.begin_call(op, args), op, args)

    def collect(self, truncated_only: bool) -> list[Any]:
        """Collect episodes and final observations from all processes, the main process's last."""
        row = COLLECT_TRUNCATED if truncated_only else COLLECT_ALL
        number = self.control.command(CALL, self._calls, row)
        self.call_in_progress = number, "collect", None
        return self.end_call(number, "collect", (truncated_only,))

    def begin_call(self, op: str, args: tuple[Any, ...]) -> int:
        """Start a call in the workers; return its number."""
        # The command before the requests: a worker reads its pipe only after it has seen the command, and
        # sending a request that exceeds the pipe's capacity blocks until the worker reads.
        number = self.control.command(CALL, self._calls, BY_PIPE)
        self.call_in_progress = number, op, args
        n, sent = len(self.workers), 0
        try:
            while sent < n:
                self._send(sent, number, op, args)
                sent += 1
        except Exception:
            # The request cannot be pickled, but the command has announced one. The remaining workers get an
            # empty request instead, and all answers must be read before the next call.
            if self.broken is None:
                for w in range(sent, n):
                    self._send(w, number, "nothing", ())
                with contextlib.suppress(Exception):
                    self._gather(number, op)
            raise
        return number

    def _send(self, w: int, number: int, op: str, args: tuple[Any, ...]) -> None:
        """Send a call to one worker. The cage ends if the worker is dead or does not read."""
        worker = self.workers[w]
        try:
            worker.ask(op, *args, number=number)
        except Exception as error:
            if isinstance(error, WorkerTimeoutError):
                self.end(error)  # the pipe may contain half a message, and cannot be used again
            elif worker.broken is not None:
                # Only this one: the other dead workers are found when the call is sent to them.
                if self._recovered({w: error}):
                    return
                self._fail(self._calls, number, f"before {op}", {w})
            raise
        except BaseException as error:
            self.end(error)
            raise

    def end_call(self, number: int, op: str, args: tuple[Any, ...]) -> list[Any]:
        """Run the main process's part of a call and wait for the workers; return all results, main's last."""
        mine: list[Any] = []
        wrong: Exception | None = None
        if self.main is not None:
            try:
                mine.append(self.main.calls[op](*args))
            except Exception as error:
                # Raised only after the workers have answered, or the next call would find their answers.
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
        """Return the answers of all workers. Raises the first error after all have answered."""
        doing = f"during {op}"
        try:
            self.await_done(self._calls, number, doing)
        except BaseException as error:
            # Interrupted, e.g. by Ctrl-C. A worker with a long answer would block until it is read.
            if self.broken is None:
                self.end(error)
            raise
        finally:
            self.call_in_progress = None
        results, errors = [], []
        # Continues after an error: an unread answer would be taken for that of the next call.
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
            # Over the pipe only if the mail box is empty.
            mail = self.control.take_message(self._calls, w) or b""
            return worker.answer(number, doing, mail=mail)
        except BaseException as error:
            if worker.broken is not None or not isinstance(error, Exception):
                self.end(error)
            raise

    # ------------------------------------------------------------------ the end

    def disown(self, why: str) -> None:
        """Refuse all further use, in a fork of the owning process."""
        # Rescued results are for the owner to collect.
        self.rescued = None
        if self.broken is None:
            self.broken = why

    def check_open(self, name: str) -> None:
        """Check that the pool can be used. Raises ClosedError with the reason."""
        if self.broken is not None:
            raise ClosedError(f"{name}: {self.broken}")

    def _fail(
        self, group: int, number: int, doing: str, failed: set[int], *, recover: bool = False
    ) -> None:
        """Raise the error of the failed workers, after giving the others SETTLE_S to fail as well.

        recover: whether to replace them where that is possible; nothing is raised then.
        """
        load, first = self.control.wait.load, self.control.size.done_line(group)
        deadline = time.monotonic() + SETTLE_S
        while True:
            dead = {w for w, worker in enumerate(self.workers) if worker.child.died()}
            failed |= dead | {w for w in range(len(self.workers)) if load(first + w) == FAILED}
            self.unfinished = self._busy(group, number)
            busy = [w for w in self.unfinished if w not in failed]
            if not busy or time.monotonic() > deadline:
                break
            # Waits on a busy worker's word, which changes as soon as it finishes or fails.
            self.control.wait.wait(first + busy[0], load(first + busy[0]), SETTLE_S / 4)
        # A worker posts FAILED before it sends its error, so this may wait for the pipe.
        errors = {w: self.workers[w].failure(doing) for w in sorted(failed)}
        if recover and self._recovered(errors):
            return
        error = first_of(list(errors.values()))
        self._end_failed(error, failed.union(busy))
        raise error

    def _end_failed(
        self, error: BaseException, silent: set[int], row: tuple[int, int] | None = None
    ) -> None:
        """Rescue uncollected results, then end all processes; workers in `silent` are not asked.

        row: group and number of a row in which the main process failed, while workers may still step.
        """
        if self.broken is None and isinstance(error, Exception):  # after Ctrl-C, end immediately
            self.rescued = self._rescue(silent)
        if row is not None:
            # After the rescue, because workers finish their row before they answer it.
            self.unfinished = self._busy(*row)
        self.end(error)

    def _rescue(self, silent: set[int]) -> list[Any]:
        nothing: list[Any] = [([], [])] * self._calls  # for each group
        rescued: list[Any] = []
        # One deadline for all, so that many hanging workers do not add up.
        line, deadline = self.control.size.done_line(self._calls), time.monotonic() + RESCUE_S
        number = self.control.command(CALL, self._calls, COLLECT_AT_ONCE)
        for w, worker in enumerate(self.workers):
            found = worker.pending_results  # a failed worker sent them after its exception
            # An error here must not hide the original failure.
            with contextlib.suppress(Exception):
                left_s = deadline - time.monotonic()
                if w not in silent and self.control.wait.wait_each(line + w, 1, number, left_s):
                    mail = self.control.take_message(self._calls, w) or b""
                    found = worker.answer(number, "during collect", RESCUE_S, mail=mail)
            rescued.append(nothing if found is None else found)
        if self.main is not None:
            rescued.append(self.main.collect(False, True))
        return rescued

    def close_environments(self) -> list[Exception]:
        """Close all environments while the processes are idle; return the errors."""
        errors: list[Exception] = []
        number = self.control.command(CALL, self._calls, BY_PIPE)
        for worker in self.workers:  # all begin to close before any is awaited
            worker.begin_close(number)
        steps: list[Callable[[], Any]] = [worker.close for worker in self.workers]
        if self.main is not None:
            steps.insert(0, self.main.close)  # main's first, while the workers close theirs
        for step in steps:
            try:
                step()
            except Exception as error:
                errors.append(error)
        return errors

    def end(self, why: BaseException | None) -> None:
        """End all processes, whatever they are doing. Later calls report `why` as the reason."""
        # First, so that the pool refuses all use even if the rest is interrupted.
        self.broken = reason_of(why)
        # They refer to this pool, a cycle that would keep buffers alive.
        self.recover, self.take_losses = _recover_none, _lose_nothing
        # Runs in reverse: main's environments, the workers, then the memory, which no process uses any more.
        with contextlib.ExitStack() as stack:
            for array in self._memory:
                stack.callback(array.close)
            stack.callback(self.control.close)
            for worker in self.workers:
                stack.callback(worker.close)
            if self.main is not None:
                stack.enter_context(contextlib.suppress(Exception))
                self.main.close()


def _recover_none(errors: dict[int, BaseException]) -> bool:
    return False


def _lose_nothing(group: int, number: int) -> None:
    pass


def _await_made(workers: Sequence[Conversation], timeout_s: float) -> list[tuple[int, Spaces]]:
    """Return the first messages of all workers; after a failure, the rest get only SETTLE_S."""
    doing = "while its environments were made"
    made: dict[int, tuple[int, Spaces]] = {}
    errors: list[Exception] = []
    awaited = {worker.child: w for w, worker in enumerate(workers)}
    left_s = timeout_s
    while awaited:
        # Waits for any of them: the last one may be the first to fail.
        heard, left_s = await_any(list(awaited), left_s)
        for child in heard:
            w = awaited.pop(child)
            try:
                made[w] = workers[w].answer(FIRST_WORDS, doing)
            except Exception as error:
                errors.append(error)
                # The others get SETTLE_S to fail as well, so that the error can say how many did.
                left_s = min(left_s, SETTLE_S)
        if not heard:
            # After an error the others were given no time, so they are not reported as late.
            errors = errors or [child.late_error(timeout_s, doing) for child in awaited]
            break
    if errors:
        raise first_of(errors)
    return [made[w] for w in range(len(workers))]
