"""Standard input of a program, with time-outs and detection of its death.

    this process   write    waits for room in the pipe and for the end of the process together, and reads
                            the program's output meanwhile
    program        reads whenever it likes, or never; perhaps only after its output has been read

`PipeEnd` does the same for children with its message format; here the bytes are in the program's own format.
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
        fd: descriptor of the pipe; closed by `close`.
        death: descriptor that becomes readable when the process ends, or -1.

    Attributes:
        torn: whether only part of a message was written; nothing may be written afterwards.
    """

    def __init__(self, fd: int, death: int) -> None:
        self._fd, self._death = fd, death
        self.torn = False
        # Keeps messages of two threads apart. Reentrant, as a signal handler may close in the middle of a
        # write.
        self._lock = threading.RLock()
        self._closing = False
        if sys.platform != "win32":
            # A blocking write of more than the pipe holds would return only when all is read, whatever the
            # time-out.
            os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """Whether the input is closed, so that the program sees its end after reading everything."""
        return self._closing

    def write(
        self,
        message: bytes | bytearray | memoryview,
        timeout_s: float,
        output: LineReader | None = None,
    ) -> None:
        """Write a whole message. On Windows this may exceed the time-out.

        output: the program's output, read ahead meanwhile.

        Raises:
            TimeoutError: if it was not accepted in time; its argument is the number of bytes that were.
            BrokenPipeError: if the process has ended, or has closed its input.
            ClosedError: if the pipe is torn, or was closed before or meanwhile.
        """
        if not self._lock.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
            raise TimeoutError(0)
        try:
            left = memoryview(message).cast("B")
            size = len(left)
            if self._closing:
                raise ClosedError("written to after its input was closed")
            # Under the lock, as `torn` is also set while another thread writes.
            if self.torn:
                raise ClosedError(
                    "it has received only part of a message, and would read anything sent now as "
                    "the rest of it; end it and start another"
                )
            # Set first, as an interrupt may come right after the write.
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
        """Wait until a write would not block; return the remaining time."""
        while True:
            # Made in every round: the output may have ended or be full since the last one.
            poller = select.poll()
            poller.register(self._fd, select.POLLOUT)
            if self._death >= 0:
                poller.register(self._death, select.POLLIN)
            written = -1 if output is None or output.is_full else output.fileno()
            if written >= 0:
                poller.register(written, select.POLLIN)
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            ready = {fd for fd, _ in poller.poll(slice_s * 1000)}
            # Checked separately, as another process may hold the pipe open.
            if self._death in ready:
                raise BrokenPipeError
            if output is not None and written in ready:
                # A program may take no more input before its output has been read.
                output.read_ahead()
            left_s -= counted_s(began, slice_s)
            # Another thread is closing: `write` sees that next, and raises ClosedError.
            if self._fd in ready or self._closing:
                return left_s
            if left_s <= 0:
                raise TimeoutError

    def close(self) -> None:
        """Close the pipe, interrupting another thread's write. Idempotent."""
        # Before taking the lock, which a writing thread releases when it sees this.
        self._closing = True
        # Not while another thread writes: the descriptor's number may be reused immediately.
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """Close a fork's copy without the lock, which a thread that the fork lacks may hold."""
        self._closing = True
        # Cleared before closing, so that a signal handler in between does not close the number again.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
