"""Read the lines that a program writes, in the thread that asks for them.

    program    writes its output       blocks while the pipe is full
    caller     next()                  reads the pipe while it waits for a line; ends with the output, or with
                                       the process, after what was in the pipe at that moment
               read_ahead()            keeps what is there, while the caller waits for something else
               discard()               a thread throws away what comes, so that a program can leave

No thread reads while the program runs: it would take each line over from another thread, at four times the
cost of reading it. All that is shared is guarded by one lock, which is held while `next` waits.
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
_PIPE = 2**20  # what a pipe should hold, so that a program can write what is not asked for yet
_MAX_AHEAD = 2**24  # bytes that are kept while nothing is asked for
_PAUSE_S = 0.001  # between looks at a pipe of Windows, which cannot be waited for
_WINDOWS = sys.platform == "win32"
Line: TypeAlias = bytes | LineTooLongError  # what is raised in the place of a line


class LineReader:
    """The read end of a pipe, and the lines that were read from it and not taken yet.

    Args:
        fd: where the lines come from; closed by `close`.
        death: descriptor that becomes readable when the process ends; -1 if there is none, and the end of the
            output is waited for.
        name: what errors call the program.
        max_line_bytes: a longer line is reported by one LineTooLongError in its place, and left out.
    """

    def __init__(self, fd: int, death: int, *, name: str, max_line_bytes: int) -> None:
        self._fd, self._death, self._name = fd, -1, name
        self._max_line_bytes = max_line_bytes
        # Reentrant: a signal handler may end the program while this thread waits for a line of it.
        self._lock = threading.RLock()
        self._lines: deque[Line] = deque()
        self._n_bytes = 0
        self._ended = False
        self._closing = False
        self._thread: threading.Thread | None = None  # throws away what comes
        # The line that is not complete. In one piece, as many short writes would take far more as a list.
        self._part = bytearray()
        self._skips = False  # the rest of a line that was too long
        try:
            # A copy, as this one's is closed while another thread may still wait for it.
            self._death = os.dup(death) if death >= 0 else -1
            _prepare(fd)
        except OSError:  # a limit on files was reached
            self._close_files()
            raise
        self._poller = None if _WINDOWS else _poller(fd, self._death)

    # ------------------------------------------------------------------ the caller

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line without its end, None if there is none in time.

        Raises:
            LineTooLongError: in place of a line that is above the limit.
            EOFError: if there will be no more; its argument is what came of a line that was not completed.
        """
        if not self._lock.acquire(blocking=False):
            began = monotonic()
            if not self._lock.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
                return None
            timeout_s -= monotonic() - began
        try:
            # Lines before the end: those that were written before a death come before it.
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
        """Whether `next` returns or raises at once, without a look at the pipe."""
        return bool(self._lines) or self._ended

    @property
    def is_full(self) -> bool:
        """Whether nothing more is read ahead."""
        return self._n_bytes > _MAX_AHEAD

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there may be more; -1 once there is none."""
        return -1 if self._ended else self._fd

    @property
    def death(self) -> int:
        """The descriptor that becomes readable when the process ends; -1 if there is none."""
        return self._death

    def read_ahead(self) -> None:
        """Read what is there, up to a limit of whole lines; do not wait."""
        # Another thread that has the lock reads by itself.
        if self._lock.acquire(blocking=False):
            try:
                while not (self._ended or self.is_full) and self._await_output(0.0):
                    pass
            finally:
                self._lock.release()

    def read_until_end(self, timeout_s: float) -> float:
        """Read until the process ends, or has written much; return what is left of the time."""
        left_s = timeout_s
        with self._lock:
            while left_s > 0 and not (self._ended or self.is_full):
                slice_s, began = min(left_s, SLICE_S), monotonic()
                self._await_output(slice_s)
                left_s -= counted_s(began, slice_s)
        return max(left_s, 0.0)

    def discard(self) -> None:
        """Throw away what comes from now on, so that a program which has to end does not wait for room."""
        if self._thread is None and not self._ended:
            # Daemon: at exit Python waits for other threads before it calls what ends the program.
            self._thread = threading.Thread(
                target=self._drain, name=f"{self._name}: output", daemon=True
            )
            # It cannot be started at exit, and then the program is killed at once.
            with suppress(RuntimeError):
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Close the pipe; a thread that waits for a line has seen the death of the process by now."""
        self._closing = True
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(timeout_s)
        # With the lock: the number might be another file's when a thread reads it.
        if self._lock.acquire(timeout=timeout_s):
            try:
                self.abandon()
            finally:
                self._lock.release()

    def abandon(self) -> None:
        """Close the copy that a fork has got, whose lock may belong to a thread that it lacks."""
        self._ended = True
        self._close_files()

    # ------------------------------------------------------------------ reading

    def _await_line(self, left_s: float) -> None:
        reads_left = _PIPE // _CHUNK  # when the time is over: an endless line may come for ever
        while not (self._lines or self._ended):
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            has_read = self._await_output(slice_s)
            left_s -= counted_s(began, slice_s)
            if left_s <= 0:
                reads_left -= 1
                if not has_read or reads_left <= 0:
                    return

    def _await_output(self, timeout_s: float) -> bool:
        """Wait for output or for the end, and take it; return False if none came in time."""
        ready = self._ready(timeout_s)
        if self._ended or not ready:  # by a signal handler meanwhile
            return False
        if self._death in ready:
            # The end goes first: after it, output may come for ever from what still holds the pipe.
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
        """Take what a dead process has left in the pipe, not what others write into it later."""
        import fcntl
        import termios

        # Its size first: by reading to the end we would wait for all that have inherited the pipe.
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
            # A thread that waits for a line takes what comes meanwhile.
            if self._lock.acquire(timeout=SLICE_S):
                try:
                    self._await_output(SLICE_S)
                    self._lines.clear()
                    self._n_bytes, self._part = 0, bytearray()
                finally:
                    self._lock.release()

    def _close_files(self) -> None:
        # Forgotten before they are closed: a signal handler in between would close another's.
        fds, self._fd, self._death = (self._fd, self._death), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    # ------------------------------------------------------------------ lines

    def _take(self, chunk: bytes) -> None:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not (self._part or self._skips or len(end) > self._max_line_bytes):
                self._put(end)  # as most do, it came whole
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
        """Add to the line that is not complete; if it gets too long, put an error in its place."""
        if self._skips:
            return
        self._part += part
        if len(self._part) > self._max_line_bytes:
            # At once, as the end of the line may never come.
            self._part, self._skips = bytearray(), True
            self._lines.append(
                LineTooLongError(
                    f"{self._name}: a line of more than max_line_bytes={self._max_line_bytes:,} was left "
                    "out; raise that limit, or let the program write shorter lines"
                )
            )


def _prepare(fd: int) -> None:
    """Let reads of our end return at once, and let the pipe hold more."""
    if sys.platform == "win32":
        return
    import fcntl

    os.set_blocking(fd, False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # All pipes of a user have a limit together.
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE)


def _poller(fd: int, death: int) -> select.poll:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    if death >= 0:
        poller.register(death, select.POLLIN)
    return poller


def _has_output(fd: int) -> bool:
    """Return whether a pipe of Windows can be read at once, its end included."""
    if sys.platform == "win32":
        import _winapi
        import msvcrt

        try:
            return bool(_winapi.PeekNamedPipe(msvcrt.get_osfhandle(fd), 0)[0])
        except BrokenPipeError:
            return True
    return True
