"""The parent's end of a conversation with one child: it asks, and the child answers.

    parent: Conversation                                       child: ChildConversation
    ask                    -- REGISTER ... ------------------> a buffer that it does not know yet
                           -- CALL, number, (op, args) ------>
    send                   -- a kind of its own, number, ... >
    receive, answer        <- ANSWER, number, value ----------
                           <- ERROR, number, exception -------  of a request that leaves the child well
                           <- a kind of its own, number, ... -
    at any time            <- EXCEPTION, exception -----------  the child ends
    pending_results        <- ANSWER, PENDING_RESULTS, value -  after that: results not asked for yet

Every reply carries the number of its request. Ctrl-C may end the wait for one, which then comes late: it is
dropped, and never taken for another's. An EXCEPTION has no number, as a child may fail between two requests;
it is sent before what the child leaves behind, as collecting that may fail as well, or hang.

A conversation breaks, once, for a reason that later calls are given: the child has failed, has died, or is
late. One that is late is ended, as it might still write to memory that both have.

It ends in stages: the child is asked (`begin_close`), may close what it has, may leave, is terminated, and is
killed. Many are asked before any is waited for, so that they share the time. Buffers go through the link
alone; numbers, reasons and stages know nothing of it.
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
FIRST_WORDS, PENDING_RESULTS = 0, -1  # numbers of answers without a request, which count from 1
LAST_WORDS_S = 2.0  # what a dead child wrote is there already; one that fails is writing
LEFT_BEHIND_S = 0.5  # follows at once
CLOSE_S = 4.0  # what takes longer to close is killed
LEAVE_S = 2.0  # and so is a process that goes on when it has closed everything
LEAST_S = 0.1  # of that, for a process that was asked long ago
_LAST_NUMBER = 2**31 - 1


def reason_of(error: BaseException | None) -> str:
    """Return what ClosedError says after a failure, or after `close()`."""
    return "used after close()" if error is None else f"ended after {type(error).__name__}: {error}"


class Conversation:
    """Ask a child one thing at a time, until it is closed or fails.

    Args:
        child: runs a `ChildConversation`; it is ended with the conversation.
        timeout_s: how long it may take for one answer; may be set at any time.
        buffers: what it inherited.
        leave_s: how long it may take to close what it has after it has failed.

    Attributes:
        broken: why nothing can be asked any more; None as long as all is well.
        error: the exception that broke it, until `close`.
        pending_results: what a child that failed still handed over, until `close`; None if there is nothing.
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
        self._answered = FIRST_WORDS - 1  # number of the last reply that was waited for
        self._close_number = 0
        self._close_by: float | None = None  # once it has been asked to
        self._link = Link(child.connection, child)
        if buffers is not None:
            self._link.adopt(buffers)  # the child does the same, so neither introduces them
        own(self)

    def check_open(self) -> None:
        """Raise ClosedError, with the reason, if nothing can be asked any more."""
        if self.broken is not None:
            raise ClosedError(f"{self.child.name}: {self.broken}")

    def disown(self, why: str) -> None:
        """Refuse everything, in a forked copy of the process that the child belongs to."""
        self._close_by = None
        if self.broken is None:
            self.broken = why

    # ------------------------------------------------------------------ asking

    def next_number(self) -> int:
        """Return the number for the next request."""
        # From 1 again after the largest int32; replies that late are long gone.
        self._number = self._number % _LAST_NUMBER + 1
        return self._number

    def ask(self, op: str, *args: Any, number: int | None = None, doing: str | None = None) -> int:
        """Send a call and return its number; buffers that the child does not know are introduced first.

        number: one that the child knows from elsewhere.
        doing: for messages; default "before" the operation.

        Raises:
            TypeError, RegistrationError: if something cannot be sent; the conversation goes on.
            Exception: as `send`.
        """
        number = self.next_number() if number is None else number
        doing = doing or f"before {op}"
        try:
            self._link.timeout_s = self.timeout_s
            content = self._link.dumps((op, args))
        except WorkerError as error:  # it introduces buffers
            not_taken = error
        except Exception:
            raise  # refused; introductions are sent whole or not at all, so the conversation goes on
        except BaseException as error:  # Ctrl-C: half an introduction may have been sent
            self.break_off(error)
            raise
        else:
            self.send(HEAD.pack(CALL, number) + content, doing)
            return number
        # Out here, so that the error of the pipe is not shown as the context of what the child raised.
        raise self._why_not_taken(not_taken, doing)

    def send(self, message: bytes, doing: str) -> None:
        """Send a request of a kind of its own, which begins with HEAD.

        Raises:
            WorkerTimeoutError, WorkerDiedError: if the child did not take it.
            Exception: what the child raised before that.
        """
        try:
            self.child.send_bytes(message, self.timeout_s)
            return
        except WorkerError as error:
            not_taken = error
        except BaseException as error:  # Ctrl-C: half a message may have been sent
            self.break_off(error)
            raise
        raise self._why_not_taken(not_taken, doing)

    def _why_not_taken(self, error: WorkerError, doing: str) -> BaseException:
        """Return why the child did not take a request; one that is dead may have said before why."""
        if not isinstance(error, WorkerTimeoutError):
            return self.failure(doing)
        self.break_off(error)
        return error

    # ------------------------------------------------------------------ answers

    def call(self, op: str, *args: Any) -> Any:
        """Ask, and return the answer."""
        return self.answer(self.ask(op, *args), f"during {op}")

    def answer(
        self, number: int, doing: str, timeout_s: float | None = None, *, mail: bytes = b""
    ) -> Any:
        """Return what the child answered to a call; raises as `receive`."""
        return self.value_of(self.receive(number, doing, timeout_s, mail=mail))

    def value_of(self, reply: bytes) -> Any:
        """Return the value that an ANSWER carries."""
        return self._link.loads(reply[HEAD.size :])

    def is_next(self, number: int) -> bool:
        """Return whether the next reply is certainly that to a request, as none was interrupted before."""
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
        """Return the next reply to a request; replies to others, which were interrupted, are dropped.

        doing: what the child was asked to do, for messages.
        mail: the first reply, if it came another way.
        now: return b"" if the reply has not come yet.

        Raises:
            WorkerTimeoutError: if it did not come within `timeout_s`, by default that of the conversation.
            WorkerDiedError: if the child died without a reply.
            Exception: what the child raised, as itself. The conversation goes on if `broken` is None.
        """
        if timeout_s is None:
            timeout_s = self.timeout_s
        found = None
        # Replies to interrupted requests come first, as the child answers in order.
        while found != number:
            if now and not self.child.poll():
                return b""
            try:
                reply = mail or self._link.receive(self.child, timeout_s, doing)
            except Exception as error:
                self.break_off(error)
                raise
            kind, found = HEAD.unpack_from(reply)
            mail = b""  # once: if it is an old one, the reply comes over the pipe
        self._answered = number
        if kind == ERROR:
            raise_packed(
                reply[HEAD.size :], f"{self.child.name}, process {self.child.pid}, {doing}"
            )
        return reply

    # ------------------------------------------------------------------ failures

    def failure(self, doing: str) -> BaseException:
        """Return why the child failed: the exception that it sent before it ended, or how it died.

        Replies that it sent before are dropped. The conversation is broken afterwards.
        """
        # What was written stays in the pipe after the death of its writer, so this is read after the death
        # was noticed: a channel reports the end only when the pipe is empty.
        try:
            while self.error is None:
                self._link.receive(self.child, LAST_WORDS_S, doing)
        except WorkerTimeoutError:
            # It was found dead, or said that it failed: to call it late would hide that.
            self.break_off(self.child.death_error(doing))
        except Exception as error:
            self.break_off(error)
        assert self.error is not None
        return self.error

    def break_off(self, error: BaseException) -> None:
        """End the child; later calls are given `error` as the reason."""
        if self.broken is not None:
            return
        # First: what is done below may fail or be interrupted, and no request may follow then.
        self.error, self.broken = error, reason_of(error)
        grace_s = 0.0
        # Only a child that raised this itself still has something to hand over, and closes what it has.
        if isinstance(error.__cause__, WorkerTracebackError):
            # What goes wrong here would hide why the child failed.
            with suppress(Exception):
                reply = self._link.receive(self.child, LEFT_BEHIND_S, "while it ended")
                if HEAD.unpack_from(reply)[1] == PENDING_RESULTS:
                    self.pending_results = self.value_of(reply)
            grace_s = self._leave_s
        self.child.end(grace_s)

    # ------------------------------------------------------------------ the end

    def begin_close(self, number: int | None = None) -> None:
        """Ask the child to close what it has and to leave, after what it is doing; never raises."""
        if self._close_by is None and self.broken is None:
            # The time begins with the request: it is shared by all children that are asked now.
            self._close_by = time.monotonic() + min(self.timeout_s, CLOSE_S)
            # What goes wrong breaks the conversation, which `close` raises.
            with suppress(Exception):
                self._close_number = self.ask("close", number=number, doing="during close")

    def close(self, *, forgive: bool = False) -> None:
        """Let a child leave that was asked to, and kill it otherwise; may be called twice.

        forgive: raise only what closing itself raises, not that the child failed, died or hangs.

        Raises:
            Exception: what the child raised when it was asked to close, or WorkerError if it died or hangs;
                once it has ended.
        """
        try:
            if self._close_by is not None:
                self._await_closed(self._close_by, forgive)
        finally:
            self._close_by = None
            self.child.kill()  # also after Ctrl-C; nothing if it has left
            # Buffers that only the link still holds are released with it.
            self._link.clear()
            # An exception keeps the frames that it passed, and so all their local variables, alive.
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
                # Many were asked at the same time, so the time to leave has begun for all of them.
                leave_by = close_by - allowed_s + LEAVE_S
                self.child.end(max(leave_by - time.monotonic(), LEAST_S))
        if error is not None and not (forgive and self.broken is not None):
            raise error
