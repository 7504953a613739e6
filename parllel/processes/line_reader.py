"""Read the lines that a program writes into a queue of limited size.

    program    writes its output          blocks while the pipe is full
    thread     reads the pipe, splits     waits while the queue is full; ends at the end of the output, or
                                          with the process, after what was in the pipe at that moment
    caller     next()                     takes lines; wakes the thread once the queue is half empty
               discard()                  from then on the thread throws away what it reads

All that thread and caller share is guarded by one lock, with a condition for each direction of waiting.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

from parllel.counted_time import SLICE_S, counted_s
from parllel.errors import LineTooLongError

_CHUNK = 2**16  # what a pipe holds
Line: TypeAlias = bytes | LineTooLongError  # what is raised in the place of a line


class LineReader:
    """A thread that reads lines, and the queue of those that were not taken yet.

    Args:
        fd: where the lines come from; the thread closes it.
        death: descriptor that becomes readable when the process ends; -1 if there is none, and the end of the
            output is waited for.
        name: what errors call the program.
        queue_lines, queue_bytes: how much the queue holds; one line of any size fits into an empty queue.
        max_line_bytes: a longer line is reported by one LineTooLongError in its place, and left out.
    """

    def __init__(
        self,
        fd: int,
        death: int,
        *,
        name: str,
        queue_lines: int,
        queue_bytes: int,
        max_line_bytes: int,
    ) -> None:
        self._fd, self._death, self._name = fd, -1, name
        self._most_lines, self._most_bytes = queue_lines, queue_bytes
        self._max_line_bytes = max_line_bytes
        # Reentrant: the collector may end a forgotten program in any thread, this one included.
        self._lock = threading.RLock()
        self._readable = threading.Condition(self._lock)
        self._writable = threading.Condition(self._lock)
        self._lines: deque[Line] = deque()
        self._n_bytes = 0
        self._is_full = False  # whether the thread waits for room
        self._discards = False
        self._ended = False
        # The thread's alone until it has ended: the line that is not complete.
        # In one piece, as many short writes would take far more as a list.
        self._part = bytearray()
        self._skips = False  # the rest of a line that was too long
        # Daemon: at exit Python waits for other threads before it calls what ends the program.
        self._thread = threading.Thread(target=self._run, name=f"{name}: output", daemon=True)
        try:
            # A copy, as the thread may use it for longer than the program's object lives.
            self._death = os.dup(death) if death >= 0 else -1
            self._thread.start()
        except (OSError, RuntimeError):  # a limit on files or threads was reached
            self._close_files()
            raise

    # ------------------------------------------------------------------ the caller

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line without its end, None if there is none in time.

        Raises:
            LineTooLongError: in place of a line that is above the limit.
            EOFError: if there will be no more; its argument is what came of a line that was not completed.
        """
        left_s = timeout_s
        with self._lock:
            # Lines before the end: those that were written before a death come before it.
            while not self._lines:
                if self._ended:
                    raise EOFError(bytes(self._part))
                if left_s <= 0:
                    return None
                slice_s, began = min(left_s, SLICE_S), monotonic()
                self._readable.wait(slice_s)
                left_s -= counted_s(began, slice_s)
            line = self._lines.popleft()
            if isinstance(line, bytes):
                self._n_bytes -= len(line)
            # Not for each line: the thread would fill the one place, and wait again.
            if self._is_full and self._is_half_empty():
                self._writable.notify()
        if isinstance(line, LineTooLongError):
            raise line
        return line

    def discard(self) -> None:
        """Forget all lines and go on reading, so that a program which has to end does not wait for room."""
        with self._lock:
            # Before the thread wakes up: it would take the empty queue for room, and fill it again.
            self._discards = True
            self._lines.clear()
            self._n_bytes = 0
            self._writable.notify()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, as it does with the process."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            poller = None
            if self._death >= 0:
                poller = select.poll()
                poller.register(self._fd, select.POLLIN)
                poller.register(self._death, select.POLLIN)
            while not self._is_dead(poller):
                chunk = os.read(self._fd, _CHUNK)
                if not chunk:
                    return
                self._take(chunk)
            for chunk in self._rest_of_pipe():
                self._take(chunk)
        finally:
            # By this thread alone: closed by another, the number might be another file's when it is read.
            self._close_files()
            with self._lock:
                # Last, as the caller takes it to mean that all lines are in the queue.
                self._ended = True
                self._readable.notify_all()

    def _close_files(self) -> None:
        for fd in (self._fd, self._death):
            if fd >= 0:
                os.close(fd)

    def _is_dead(self, poller: select.poll | None) -> bool:
        """Wait for output or for the end of the process; return whether it ended."""
        if poller is None:  # then `read` waits
            return False
        # Without a time-out, as one of the two will come. The end goes first: after it, output may come for
        # ever from what still holds the pipe.
        return any(fd == self._death for fd, _ in poller.poll())

    def _rest_of_pipe(self) -> list[bytes]:
        """Return what a dead process has left in the pipe, not what others write into it later."""
        import fcntl
        import termios

        # Its size first: by reading to the end we would wait for all that have inherited the pipe.
        size = bytearray(4)
        with suppress(OSError):
            fcntl.ioctl(self._fd, termios.FIONREAD, size)
        left = int.from_bytes(size, sys.byteorder)
        chunks = []
        while left > 0:
            chunks.append(os.read(self._fd, min(left, _CHUNK)))
            left -= len(chunks[-1])
        return chunks

    def _take(self, chunk: bytes) -> None:
        if self._discards:
            return
        *ends, rest = chunk.split(b"\n")
        lines: list[Line] = []
        for end in ends:
            if not (self._part or self._skips or len(end) > self._max_line_bytes):
                lines.append(end)  # as most do, it came whole
                continue
            self._add_part(end, lines)
            if not self._skips:
                lines.append(bytes(self._part))
            self._part, self._skips = bytearray(), False
        if rest:
            self._add_part(rest, lines)
        if lines:
            self._put(lines)

    def _add_part(self, part: bytes, lines: list[Line]) -> None:
        """Add to the line that is not complete; if it gets too long, put an error in its place."""
        if self._skips:
            return
        self._part += part
        if len(self._part) > self._max_line_bytes:
            # At once, as the end of the line may never come.
            self._part, self._skips = bytearray(), True
            lines.append(
                LineTooLongError(
                    f"{self._name}: a line of more than max_line_bytes={self._max_line_bytes:,} was left "
                    "out; raise that limit, or let the program write shorter lines"
                )
            )

    def _put(self, lines: list[Line]) -> None:
        with self._lock:
            for line in lines:
                while not (self._discards or self._has_room(line)):
                    self._is_full = True
                    # Before this waits: the caller may still wait for the lines put so far.
                    self._readable.notify()
                    self._writable.wait()
                self._is_full = False
                if self._discards:
                    return
                self._lines.append(line)
                if isinstance(line, bytes):
                    self._n_bytes += len(line)
            self._readable.notify()

    def _has_room(self, line: Line) -> bool:
        if self._is_full:
            return self._is_half_empty()
        size = len(line) if isinstance(line, bytes) else 0
        fits = len(self._lines) < self._most_lines and self._n_bytes + size <= self._most_bytes
        return fits or not self._lines

    def _is_half_empty(self) -> bool:
        few = len(self._lines) <= self._most_lines // 2 and self._n_bytes <= self._most_bytes // 2
        return few or not self._lines
