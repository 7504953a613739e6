"""Lines of a program's output, read in the caller's thread.

    program    writes its output       blocks while the pipe is full
    caller     next()                  reads the pipe while it waits for a line, until the output or the
                                       process ends, including what was in the pipe at that moment
               read_ahead()            keeps available output while the caller waits for something else
               discard()               a thread discards further output, so that the program can exit

No thread reads while the program runs, as passing each line between threads would cost four times as much as
reading it. One lock guards all shared state; it is held while `next` waits.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections import deque
from contextlib import suppress
from time import monotonic, sleep
from typing import TypeAlias

from parllel.errors import LineTooLongError
from parllel.system.counted_time import SLICE_S, counted_s

_CHUNK = 2**16
_PIPE = 2**20  # capacity of the pipe, so that a program can write ahead of its reader
_MAX_AHEAD = 2**24  # limit of bytes kept by read_ahead
_PAUSE_S = 0.001  # between polls of a Windows pipe, which cannot be waited for
_WINDOWS = sys.platform == "win32"
Line: TypeAlias = bytes | LineTooLongError  # an error is raised in place of its line


class LineReader:
    """The read end of a pipe, and the lines read from it but not yet taken.

    Args:
        fd: descriptor of the pipe; closed by `close`.
        death: descriptor that becomes readable when the process ends; -1 if there is none, so that only the
            end of the output counts.
        name: name of the program, for messages.
        max_line_bytes: a longer line is dropped and replaced by one LineTooLongError.
    """

    def __init__(self, fd: int, death: int, *, name: str, max_line_bytes: int) -> None:
        self._fd, self._death, self._name = fd, -1, name
        self._max_line_bytes = max_line_bytes
        # Reentrant, as a signal handler may end the program while this thread waits for a line.
        self._lock = threading.RLock()
        self._lines: deque[Line] = deque()
        self._n_bytes = 0
        self._ended = False
        self._closing = False
        self._thread: threading.Thread | None = None  # discards output
        # The incomplete line, in one piece, as a list of many short writes would take far more memory.
        self._part = bytearray()
        self._skips = False  # whether the rest of a line that was too long is being dropped
        try:
            # A copy, as the process closes its descriptor while another thread may still wait for it.
            self._death = os.dup(death) if death >= 0 else -1
            _prepare(fd)
        except OSError:  # a limit on files was reached
            self._close_files()
            raise
        self._poller = None if _WINDOWS else _poller(fd, self._death)

    # ------------------------------------------------------------------ the caller

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line without its newline, or None if there is none in time.

        Raises:
            LineTooLongError: in place of a line above the limit.
            EOFError: at the end of the output; its argument is the received part of an incomplete line.
        """
        if not self._lock.acquire(blocking=False):
            began = monotonic()
            if not self._lock.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
                return None
            timeout_s -= monotonic() - began
        try:
            # Remaining lines first: those written before a death are delivered before it is reported.
            if not self._lines:
                self._await_line(timeout_s)
            if not self._lines:
                if self._ended:
                    raise EOFError(bytes(self._part))
                return None
            line = self._lines.popleft()
            if isinstance(line, LineTooLongError):
                raise line
            self._n_bytes -= len(line)
            return line
        finally:
            self._lock.release()

    @property
    def has_line(self) -> bool:
        """Whether `next` returns or raises immediately, without reading the pipe."""
        # Without the lock, which a thread that waits for a line holds; at worst
        # a moment out of date.
        return bool(self._lines) or self._ended

    @property
    def is_full(self) -> bool:
        """Whether the limit of read_ahead is reached."""
        return self._n_bytes > _MAX_AHEAD

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there may be more output; -1 at the end."""
        return -1 if self._ended else self._fd

    @property
    def death(self) -> int:
        """The descriptor that becomes readable when the process ends; -1 if there is none."""
        return self._death

    def read_ahead(self) -> None:
        """Read available output without waiting, up to a limit of whole lines."""
        # A thread that holds the lock is reading itself.
        if self._lock.acquire(blocking=False):
            try:
                while not (self._ended or self.is_full) and self._await_output(0.0):
                    pass
            finally:
                self._lock.release()

    def read_until_end(self, timeout_s: float) -> float:
        """Read until the process ends or the limit of read_ahead is reached; return the remaining time."""
        left_s = timeout_s
        with self._lock:
            while left_s > 0 and not (self._ended or self.is_full):
                slice_s, began = min(left_s, SLICE_S), monotonic()
                self._await_output(slice_s)
                left_s -= counted_s(began, slice_s)
        return max(left_s, 0.0)

    def discard(self) -> None:
        """Discard all further output, so that a program that should exit does not block on a full pipe."""
        if self._thread is None and not self._ended:
            # A daemon, as Python joins other threads at exit before it runs the functions that end the
            # program.
            self._thread = threading.Thread(
                target=self._drain, name=f"{self._name}: output", daemon=True
            )
            # It cannot be started during exit, when the program is killed immediately anyway.
            with suppress(RuntimeError):
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Close the pipe. Call only after the process has ended; a thread blocked in a read then returns."""
        self._closing = True
        # A thread that could not be started has no id, and joining it would raise. One that runs
        # sees `_closing` within a slice.
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(timeout_s)
        # Under the lock: a reading thread must not use a descriptor number that was reused.
        # If it is still held then, the descriptors stay open, which does less harm.
        if self._lock.acquire(timeout=timeout_s):
            try:
                self.abandon()
            finally:
                self._lock.release()

    def abandon(self) -> None:
        """Close a fork's copy without the lock, which a thread that the fork lacks may hold."""
        self._ended = True
        self._close_files()

    # ------------------------------------------------------------------ reading

    def _await_line(self, left_s: float) -> None:
        reads_left = (
            _PIPE // _CHUNK
        )  # limit after the time is over, as an endless line never completes
        while not (self._lines or self._ended):
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            has_read = self._await_output(slice_s)
            left_s -= counted_s(began, slice_s)
            if left_s <= 0:
                reads_left -= 1
                if not has_read or reads_left <= 0:
                    return

    def _await_output(self, timeout_s: float) -> bool:
        """Wait for output or the end, and process it; return False after the time-out."""
        ready = self._ready(timeout_s)
        if self._ended or not ready:  # a signal handler may have ended it meanwhile
            return False
        if self._death in ready:
            # The death first: other processes that hold the pipe may write to it for ever.
            self._take_rest()
            self._ended = True
            return True
        try:
            chunk = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if chunk:
            self._take(chunk)
        else:
            self._ended = True
        return True

    def _ready(self, timeout_s: float) -> list[int]:
        if self._poller is not None:
            return [fd for fd, _ in self._poller.poll(timeout_s * 1000)]
        deadline = monotonic() + timeout_s
        while not _has_output(self._fd):
            if monotonic() >= deadline:
                return []
            sleep(_PAUSE_S)
        return [self._fd]

    def _take_rest(self) -> None:
        """Read what a dead process has left in the pipe, but not what others write later."""
        import fcntl
        import termios

        # By size, as reading to the end would wait for all processes that have inherited the pipe.
        size = bytearray(4)
        with suppress(OSError):
            fcntl.ioctl(self._fd, termios.FIONREAD, size)
        left = int.from_bytes(size, sys.byteorder)
        while left > 0:
            chunk = os.read(self._fd, min(left, _CHUNK))
            if not chunk:
                return
            left -= len(chunk)
            self._take(chunk)

    def _drain(self) -> None:
        while not (self._ended or self._closing):
            # A thread that waits for a line reads the output meanwhile.
            if self._lock.acquire(timeout=SLICE_S):
                try:
                    self._await_output(SLICE_S)
                    # Dropped in each round: a program that writes for ever must not fill the
                    # memory of this process.
                    self._lines.clear()
                    self._n_bytes, self._part = 0, bytearray()
                finally:
                    self._lock.release()

    def _close_files(self) -> None:
        # Cleared before closing, so that a signal handler in between does not close the numbers again.
        fds, self._fd, self._death = (self._fd, self._death), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    # ------------------------------------------------------------------ lines

    def _take(self, chunk: bytes) -> None:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not (self._part or self._skips or len(end) > self._max_line_bytes):
                self._put(end)  # the usual case: the whole line is in this chunk
                continue
            self._add_part(end)
            if not self._skips:
                self._put(bytes(self._part))
            self._part, self._skips = bytearray(), False
        if rest:
            self._add_part(rest)

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._n_bytes += len(line)

    def _add_part(self, part: bytes) -> None:
        """Extend the incomplete line; if it gets too long, replace it by an error."""
        if self._skips:
            return
        self._part += part
        if len(self._part) > self._max_line_bytes:
            # Immediately, as the end of the line may never come.
            self._part, self._skips = bytearray(), True
            self._lines.append(
                LineTooLongError(
                    f"{self._name}: a line of more than max_line_bytes={self._max_line_bytes:,} was left "
                    "out; raise that limit, or make the program write shorter lines"
                )
            )


def _prepare(fd: int) -> None:
    """Make our end non-blocking, and enlarge the pipe."""
    if sys.platform == "win32":
        return
    import fcntl

    os.set_blocking(fd, False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # Fails if the user's limit for all pipes together is reached.
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE)


def _poller(fd: int, death: int) -> select.poll:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    if death >= 0:
        poller.register(death, select.POLLIN)
    return poller


def _has_output(fd: int) -> bool:
    """Return whether a Windows pipe has output or is at its end."""
    if sys.platform == "win32":
        import _winapi
        import msvcrt

        try:
            return bool(_winapi.PeekNamedPipe(msvcrt.get_osfhandle(fd), 0)[0])
        except BrokenPipeError:
            return True
    return True
