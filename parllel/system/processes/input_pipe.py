"""Write to the standard input of a program, and give up at a time-out or when it dies.

    this process   write    waits for room in the pipe and for the end of the process together, and reads
                            meanwhile what the program writes
    program        reads as it likes, or never; perhaps not before its output is read

`Channel` does the same for children that speak its format; here the bytes are the program's own language.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from time import monotonic

from parllel.errors import ClosedError
from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.processes.line_reader import LineReader


class InputPipe:
    """The write end of a pipe.

    Args:
        fd: of the pipe; closed by `close`.
        death: descriptor that becomes readable when the process ends, or -1.

    Attributes:
        torn: whether part of a message was written and the rest was not, which nothing may follow.
    """

    def __init__(self, fd: int, death: int) -> None:
        self._fd, self._death = fd, death
        self.torn = False
        # Messages of two threads would mix. Reentrant: a signal handler may close in the middle of a write.
        self._lock = threading.RLock()
        self._closing = False
        if sys.platform != "win32":
            # A blocking write of more than the pipe holds returns when all is taken, whatever the time-out.
            os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """Whether the program sees the end of its input, once it has read what was written."""
        return self._closing

    def write(
        self,
        message: bytes | bytearray | memoryview,
        timeout_s: float,
        output: LineReader | None = None,
    ) -> None:
        """Write a message whole. On Windows this may wait for longer than the time-out.

        output: of the program, to be read ahead.

        Raises:
            TimeoutError: if it was not taken in time; its argument is how many bytes were.
            BrokenPipeError: if the process has ended, or has closed its input.
            ClosedError: if the pipe is closed, before or meanwhile, or torn.
        """
        if not self._lock.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
            raise TimeoutError(0)
        try:
            left = memoryview(message).cast("B")
            size = len(left)
            if self._closing:
                raise ClosedError("written to after its input was closed")
            # With the lock: while another thread writes, its message is torn too.
            if self.torn:
                raise ClosedError(
                    "it has got a part of a message, and anything more would be taken for the rest of it; "
                    "end it and start another"
                )
            # First: an interrupt may come between the write and any note of it.
            self.torn = size > 0
            try:
                while left:
                    if self._closing:
                        raise ClosedError("its input was closed while it was written to")
                    try:
                        left = left[os.write(self._fd, left) :]
                    except BlockingIOError:
                        timeout_s = self._await_room(timeout_s, output)
                self.torn = False
            except TimeoutError:
                self.torn = len(left) < size
                raise TimeoutError(size - len(left)) from None
            except (BrokenPipeError, ClosedError):
                self.torn = len(left) < size
                raise
        finally:
            self._lock.release()

    def _await_room(self, left_s: float, output: LineReader | None) -> float:
        """Wait until a write would not block, and return what is left of the time."""
        while True:
            poller = select.poll()
            poller.register(self._fd, select.POLLOUT)
            if self._death >= 0:
                poller.register(self._death, select.POLLIN)
            written = -1 if output is None or output.is_full else output.fileno()
            if written >= 0:
                poller.register(written, select.POLLIN)
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            ready = {fd for fd, _ in poller.poll(slice_s * 1000)}
            # Another process may hold the pipe open.
            if self._death in ready:
                raise BrokenPipeError
            if output is not None and written in ready:
                output.read_ahead()
            left_s -= counted_s(began, slice_s)
            if self._fd in ready or self._closing:
                return left_s
            if left_s <= 0:
                raise TimeoutError

    def close(self) -> None:
        """Close the pipe, and end a write of another thread; may be called twice."""
        # Before the lock, which a write of another thread gives up when it sees this.
        self._closing = True
        # Not while another thread writes: the number may belong to another file in the next instant.
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """Close the copy that a fork has got, whose lock may belong to a thread that it lacks."""
        self._closing = True
        # Forgotten before it is closed: a signal handler in between would close a number that is another's.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
