"""What a ProcessCage asks of its worker, one thing at a time, and the answers.

Every request has a number, which its answer carries: one that comes late, after Ctrl-C, is never taken for
another's.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, NoReturn

from parllel.buffers import Link
from parllel.cages.worker import CALL, ERROR, LEFT_BEHIND, ROW, ROW_REQUEST, SEQUENCE
from parllel.errors import ClosedError, WorkerError, WorkerTimeoutError
from parllel.processes import Child, raise_packed

FOUND_DEAD = (WorkerError, BrokenPipeError, ConnectionResetError)  # by whoever writes to the pipe
LAST_WORDS_S = 0.5  # what a dead worker has written is there already
CLOSE_S = 4.0  # an environment that takes longer to close is killed
LEAVE_S = 2.0  # and so is a process that goes on when its environment is closed
LEAST_S = 0.1  # of that, for a process that was asked long ago


class Requests:
    """One end of the conversation with a worker.

    Args:
        child: the worker's process.
        timeout_s: how long it may take for one answer.
        buffers: what it inherited.

    Attributes:
        pending: kind and name of the request that waits for its answer; None if there is none.
        broken: why nothing can be asked any more; None as long as all is well.
        left_behind: after a failure, the episodes and final observations that the worker still handed over.
        error: an AttributeError of the worker, which Python would take for one of the cage.
    """

    def __init__(self, child: Child, timeout_s: float, buffers: Any) -> None:
        self.timeout_s = timeout_s
        self.pending: tuple[str, str] | None = None
        self.broken: str | None = None
        self.left_behind: tuple[list[Any], list[Any]] | None = None
        self.error: AttributeError | None = None
        self._child = child
        self._sequence = 0
        self._answer: tuple[int, Any] = (0, None)  # to the last call
        self._close_by: float | None = None  # once it has been asked to
        self._link = Link(child.connection, child)
        if buffers is not None:
            self._link.adopt(buffers)

    def check_open(self) -> None:
        """Raise ClosedError if nothing can be asked any more."""
        if self.broken is not None:
            raise ClosedError(f"{self._child.name}: {self.broken}")

    # ------------------------------------------------------------------ asking

    def start_row(self, op: int, t: int, batch: int, what: str, *, everyone: bool) -> None:
        """Ask for a step or reset of a row of a batch that the worker is bound to."""
        self._sequence += 1
        request = ROW_REQUEST.pack(ROW, op, self._sequence & 0xFFFFFFFF, t, batch, everyone)
        try:
            self._child.send_bytes(request, self.timeout_s)
        except FOUND_DEAD as error:
            self._not_taken(error, f"before {what}")
        self.pending = ("row", f"{what} at row {t}")

    def begin(self, op: str, *args: Any) -> None:
        """Ask for anything else; buffers that the worker does not know are introduced first."""
        self._sequence += 1
        try:
            self._link.timeout_s = self.timeout_s
            message = self._link.dumps((self._sequence & 0xFFFFFFFF, op, args))
            self._child.send_bytes(CALL + message, self.timeout_s)
        except FOUND_DEAD as error:
            self._not_taken(error, f"before {op}")

    def call(self, op: str, *args: Any) -> Any:
        """Ask, and return the answer."""
        self.begin(op, *args)
        return self.result(f"during {op}")

    def _not_taken(self, error: Exception, doing: str) -> NoReturn:
        """Raise why the worker did not take a request; if it is dead it may have left word of that."""
        if isinstance(error, WorkerTimeoutError):
            self._break(error)
        else:
            self.receive(doing, LAST_WORDS_S)
        raise error

    # ------------------------------------------------------------------ answers

    def result(self, doing: str) -> Any:
        """Return the answer to what `begin` asked."""
        self.receive(doing)
        return self._answer[1]

    def receive(self, doing: str, timeout_s: float | None = None) -> bytes:
        """Return the reply to the last request; replies to earlier ones are dropped."""
        sequence = self._sequence & 0xFFFFFFFF
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        while True:
            try:
                reply = self._link.receive(self._child, timeout_s, doing)
            except Exception as error:
                self._break(error)
                raise
            kind = reply[:1]
            if kind == CALL:
                self._answer = self._link.loads(reply[1:])
                found = self._answer[0]
            else:
                found = SEQUENCE.unpack_from(reply)[1]
            if found == sequence and kind == ERROR:
                self.pending = None
                where = f"{self._child.name}, process {self._child.pid}, {doing}"
                raise_packed(reply[SEQUENCE.size :], where)
            if found == sequence:
                return reply

    def _break(self, error: Exception) -> None:
        """End the worker: the answer to this request can no longer be told from a later one's."""
        self.error = error if isinstance(error, AttributeError) else None
        self.broken = f"ended after {type(error).__name__}: {error}"
        self.left_behind = [], []
        if not isinstance(
            error, WorkerError
        ):  # of the environment: the worker still has a word to say
            with contextlib.suppress(Exception):
                reply = self._link.receive(self._child, LAST_WORDS_S, "while it ended")
                number, left_behind = self._link.loads(reply[1:])
                if number == LEFT_BEHIND:
                    self.left_behind = left_behind
        self._child.end(grace_s=0.5 if not isinstance(error, TimeoutError) else 0.0)

    # ------------------------------------------------------------------ the end

    def begin_close(self) -> None:
        """Ask the worker to close its environment and to leave, if it is not busy."""
        if self._close_by is None and self.pending is None and not self._child.ended:
            self._close_by = time.monotonic() + min(self.timeout_s, CLOSE_S)
            # What goes wrong is noticed by `close`, which gets no answer.
            with contextlib.suppress(Exception):
                self.begin("close")

    def close(self) -> None:
        """Let the worker leave that was asked to, and kill it otherwise; may be called twice.

        Raises what its environment raised, or WorkerError if the worker died or hangs.
        """
        try:
            if self._close_by is not None and not self._child.ended:
                self._await_closed(self._close_by)
        finally:
            self._child.kill()
            self._link.clear()
            self.broken, self.left_behind = "used after close()", None

    def _await_closed(self, close_by: float) -> None:
        allowed_s = min(self.timeout_s, CLOSE_S)
        try:
            self.receive("during close", max(close_by - time.monotonic(), 0.0))
        except WorkerTimeoutError:
            raise WorkerTimeoutError(
                f"{self._child.name}: process {self._child.pid} did not answer within {allowed_s:g} s "
                "during close"
            ) from None
        # Many are asked before any is waited for, so the time to leave has begun for all of them.
        leave_by = close_by - allowed_s + LEAVE_S
        self._child.end(max(leave_by - time.monotonic(), LEAST_S))
