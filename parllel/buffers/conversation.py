"""The parent's end of a request-reply conversation with one child process.

    parent: Conversation                                       child: ChildConversation
    ask                    -- REGISTER ... ------------------> a buffer that it does not know yet
                           -- CALL, number, (op, args) ------>
    send                   -- custom kind, number, ... ------>
    receive, answer        <- ANSWER, number, value ----------
                           <- ERROR, number, exception -------  the request failed, the child goes on
                           <- custom kind, number, ... -------
    at any time            <- EXCEPTION, exception -----------  the child ends
    pending_results        <- ANSWER, PENDING_RESULTS, value -  afterwards: results not requested yet

Every reply carries the number of its request. If Ctrl-C interrupts the wait for a reply, that reply arrives
late and is dropped, never mistaken for another. An EXCEPTION has no number, because a child may fail between
two requests. It is sent before the pending results, because collecting these may also fail, or hang.

A conversation breaks once, and later calls get the reason: the child failed, died, or timed out. A child that
timed out is ended, because it might still write to shared memory.

Closing has stages: the child is asked (`begin_close`), closes what it holds, exits, is terminated, is killed.
All children are asked before any is awaited, so that they share the time. Only the link handles buffers;
numbers, reasons and stages are independent of it.
"""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from typing import Any

from parllel.buffers.link import Link
from parllel.errors import ClosedError, WorkerError, WorkerTimeoutError, WorkerTracebackError
from parllel.system.processes.child import Child
from parllel.system.processes.exceptions import raise_packed
from parllel.system.processes.owned import own

HEAD = struct.Struct(
    "<ci"
)  # kind, number: the beginning of each message but REGISTER and EXCEPTION
CALL, ANSWER, ERROR = b"C", b"A", b"E"
FIRST_WORDS, PENDING_RESULTS = 0, -1  # numbers of unsolicited answers; requests count from 1
LAST_WORDS_S = 2.0  # a dead child's messages are in the pipe already; a failing one is writing
LEFT_BEHIND_S = 0.5  # pending results follow the exception at once
CLOSE_S = 4.0  # a child that takes longer to close is killed
LEAVE_S = 2.0  # and so is one that does not exit once everything is closed
LEAST_S = 0.1  # least time to exit, for a child that was asked long ago
_LAST_NUMBER = 2**31 - 1


def reason_of(error: BaseException | None) -> str:
    """Return the reason to report in ClosedError. Without an error, this is that `close` was called."""
    return "used after close()" if error is None else f"ended after {type(error).__name__}: {error}"


class Conversation:
    """Sends requests to a child and receives its replies, until the conversation is closed or fails.

    Args:
        child: the child process, which runs a `ChildConversation`. It is ended together with the
            conversation.
        timeout_s: timeout of one reply; may be changed at any time.
        buffers: the buffers that the child inherited.
        leave_s: time that a failed child gets to close its resources.

    Attributes:
        broken: why requests are refused; None while the conversation is open.
        error: the exception that broke the conversation, until `close`.
        pending_results: results sent by a failed child, until `close`; None if there are none.
    """

    def __init__(
        self, child: Child, *, timeout_s: float, buffers: Any = None, leave_s: float = 0.5
    ) -> None:
        self.child = child
        self.timeout_s = timeout_s
        self.broken: str | None = None
        self.error: BaseException | None = None
        self.pending_results: Any = None
        self._leave_s = leave_s
        self._number = 0
        self._answered = FIRST_WORDS - 1  # number of the last awaited reply
        self._close_number = 0
        self._close_by: float | None = None  # deadline, set by `begin_close`
        self._link = Link(child.connection, child)
        if buffers is not None:
            self._link.adopt(buffers)  # the child does the same, so neither end introduces them
        own(self)

    def check_open(self) -> None:
        """Raise ClosedError with the reason if the conversation is broken or closed."""
        if self.broken is not None:
            raise ClosedError(f"{self.child.name}: {self.broken}")

    def disown(self, why: str) -> None:
        """Refuse all requests. Used in a forked copy of the process that owns the child."""
        self._close_by = None
        if self.broken is None:
            self.broken = why

    # ------------------------------------------------------------------ asking

    def next_number(self) -> int:
        """Return the number for the next request."""
        # Wraps from the largest int32 to 1; no reply is late enough to be confused.
        self._number = self._number % _LAST_NUMBER + 1
        return self._number

    def ask(self, op: str, *args: Any, number: int | None = None, doing: str | None = None) -> int:
        """Send a call and return its number. Buffers that the child does not know are introduced first.

        number: a number that the child received by other means; defaults to the next number.
        doing: what the child is doing, for error messages; defaults to "before {op}".

        Raises:
            TypeError, RegistrationError: if something cannot be sent. The conversation stays open.
            Exception: any error of `send`.
        """
        number = self.next_number() if number is None else number
        doing = doing or f"before {op}"
        try:
            self._link.timeout_s = self.timeout_s
            content = self._link.dumps((op, args))
        except WorkerError as error:  # from sending the introduction of a buffer
            not_taken = error
        except Exception:
            raise  # introductions are sent whole or not at all, so the conversation stays open
        except BaseException as error:  # Ctrl-C: part of an introduction may have been sent
            self.break_off(error)
            raise
        else:
            self.send(HEAD.pack(CALL, number) + content, doing)
            return number
        # Raised outside the handler, so that the pipe's error is not the context of the child's exception.
        raise self._why_not_taken(not_taken, doing)

    def send(self, message: bytes, doing: str) -> None:
        """Send a message of a custom kind, which begins with HEAD.

        Raises:
            WorkerTimeoutError, WorkerDiedError: if the child did not read the message.
            Exception: an exception that the child raised earlier.
        """
        try:
            self.child.send_bytes(message, self.timeout_s)
            return
        except WorkerError as error:
            not_taken = error
        except BaseException as error:  # Ctrl-C: part of the message may have been sent
            self.break_off(error)
            raise
        raise self._why_not_taken(not_taken, doing)

    def _why_not_taken(self, error: WorkerError, doing: str) -> BaseException:
        """Return the error for a request that was not read."""
        # A dead child may have sent the exception that ended it.
        if not isinstance(error, WorkerTimeoutError):
            return self.failure(doing)
        self.break_off(error)
        return error

    # ------------------------------------------------------------------ answers

    def call(self, op: str, *args: Any) -> Any:
        """Send a call and return its answer."""
        return self.answer(self.ask(op, *args), f"during {op}")

    def answer(
        self, number: int, doing: str, timeout_s: float | None = None, *, mail: bytes = b""
    ) -> Any:
        """Return the value of the answer to a call. Raises the errors of `receive`."""
        return self.value_of(self.receive(number, doing, timeout_s, mail=mail))

    def value_of(self, reply: bytes) -> Any:
        """Return the value in an ANSWER."""
        return self._link.loads(reply[HEAD.size :])

    def is_next(self, number: int) -> bool:
        """Return whether the next reply must answer this request, since no earlier wait was interrupted."""
        return number == self._answered + 1

    def receive(
        self,
        number: int,
        doing: str,
        timeout_s: float | None = None,
        *,
        mail: bytes = b"",
        now: bool = False,
    ) -> bytes:
        """Return the reply to a request. Replies to interrupted requests are dropped.

        doing: what the child was asked to do, for error messages.
        mail: the first reply, if it was not sent through the pipe but received elsewhere.
        now: return b"" if the reply has not arrived yet.

        Raises:
            WorkerTimeoutError: if there is no reply within `timeout_s` (by default, the time-out of the
                conversation).
            WorkerDiedError: if the child died without a reply.
            Exception: the exception raised in the child. The conversation is still open if `broken` is None.
        """
        if timeout_s is None:
            timeout_s = self.timeout_s
        found = None
        # The child answers in order, so replies to interrupted requests come first.
        while found != number:
            if now and not self.child.poll():
                return b""
            try:
                reply = mail or self._link.receive(self.child, timeout_s, doing)
            except Exception as error:
                self.break_off(error)
                raise
            kind, found = HEAD.unpack_from(reply)
            mail = b""  # only once: if it was an old reply, the right one comes over the pipe
        self._answered = number
        if kind == ERROR:
            raise_packed(
                reply[HEAD.size :], f"{self.child.name}, process {self.child.pid}, {doing}"
            )
        return reply

    # ------------------------------------------------------------------ failures

    def failure(self, doing: str) -> BaseException:
        """Return why the child failed: the last exception that it sent, or how it died.

        Pending replies are dropped. The conversation is broken afterwards.
        """
        # The pipe keeps what a dead writer wrote, and the channel reports the end only once the pipe is
        # empty. So an exception sent before the death is read here, and found before the death error.
        try:
            while self.error is None:
                self._link.receive(self.child, LAST_WORDS_S, doing)
        except WorkerTimeoutError:
            # The child is known to be dead or failed; a timeout error would hide that.
            self.break_off(self.child.death_error(doing))
        except Exception as error:
            self.break_off(error)
        assert self.error is not None
        return self.error

    def break_off(self, error: BaseException) -> None:
        """End the child. Later calls report `error` as the reason."""
        if self.broken is not None:
            return
        # First, because the steps below may fail or be interrupted, and no request may follow then.
        self.error, self.broken = error, reason_of(error)
        grace_s = 0.0
        # Only a child that raised the exception itself sends pending results and closes what it holds.
        if isinstance(error.__cause__, WorkerTracebackError):
            # An error here would hide why the child failed.
            with suppress(Exception):
                reply = self._link.receive(self.child, LEFT_BEHIND_S, "while it ended")
                if HEAD.unpack_from(reply)[1] == PENDING_RESULTS:
                    self.pending_results = self.value_of(reply)
            grace_s = self._leave_s
        self.child.end(grace_s)

    # ------------------------------------------------------------------ the end

    def begin_close(self, number: int | None = None) -> None:
        """Ask the child to close and exit after its current request. Never raises."""
        if self._close_by is None and self.broken is None:
            # The deadline counts from the request, so that all children asked now share the time.
            self._close_by = time.monotonic() + min(self.timeout_s, CLOSE_S)
            # An error breaks the conversation, and `close` raises it.
            with suppress(Exception):
                self._close_number = self.ask("close", number=number, doing="during close")

    def close(self, *, forgive: bool = False) -> None:
        """Wait for a child that was asked to close, and kill any other. Idempotent.

        forgive: raise only errors of closing itself, not that the child failed, died or hangs.

        Raises:
            Exception: the exception that the child raised while closing, or WorkerError if it died or
                hangs. Raised after the child has ended.
        """
        try:
            if self._close_by is not None:
                self._await_closed(self._close_by, forgive)
        finally:
            self._close_by = None
            self.child.kill()  # also after Ctrl-C; no effect on a child that has exited
            # Releases buffers that only the link still refers to.
            self._link.clear()
            # An exception keeps the frames of its traceback, and so their local variables, alive.
            self.broken, self.error, self.pending_results = reason_of(None), None, None

    def _await_closed(self, close_by: float, forgive: bool) -> None:
        allowed_s = min(self.timeout_s, CLOSE_S)
        error = self.error
        if error is None:
            left_s = max(close_by - time.monotonic(), 0.0)
            try:
                self.receive(self._close_number, "during close", left_s)
            except WorkerTimeoutError:
                error = self.child.late_error(allowed_s, "during close")
            except Exception as raised:
                error = raised
            if self.broken is None:
                # All children were asked at the same time, so the time to exit runs for all of them.
                leave_by = close_by - allowed_s + LEAVE_S
                self.child.end(max(leave_by - time.monotonic(), LEAST_S))
        if error is not None and not (forgive and self.broken is not None):
            raise error
