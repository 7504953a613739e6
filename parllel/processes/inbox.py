"""Reading from a child without ever waiting longer than agreed, or for the dead.

    pipe            readable: a message, or the start of one, or the end of the pipe
    process         readable: the child ended. The pipe need not end with it: a grandchild may hold it

`Connection.recv_bytes` waits for the rest of a message that has begun, for ever if its sender was stopped or
killed in the middle and the pipe is held open. Here each part of a message is waited for on both.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from multiprocessing.connection import Connection, wait

SLICE_S = 1.0  # a wait is cut into slices, so that a clock or signal oddity cannot make it endless
# The format of Connection.send_bytes on POSIX: a length, -1 announces a longer length.
_LENGTH = struct.Struct("!i")
_LONG_LENGTH = struct.Struct("!Q")
_ONE_WRITE = 16384  # up to this size Connection writes length and message at once


class Inbox:
    """The messages of a child.

    Args:
        connection: the parent's end of the pipe; the Inbox reads it but does not own it.
        death: descriptor or handle that becomes ready when the child ends.
    """

    def __init__(self, connection: Connection, death: int) -> None:
        self._connection = connection
        self._death = death
        self._poller = None
        # One object for all waits: making one per wait costs more than a step.
        if hasattr(select, "poll") and sys.platform != "win32":
            self._fd = connection.fileno()
            self._poller = select.poll()
            self._poller.register(self._fd, select.POLLIN)
            self._poller.register(death, select.POLLIN)

    def poll(self) -> bool:
        """Return at once whether there is something to read, or the child is dead."""
        if self._poller is not None:
            return bool(self._poller.poll(0))
        return bool(wait([self._connection, self._death], 0))

    def await_death(self, timeout_s: float) -> bool:
        """Wait for the end of the child; return whether it came."""
        return bool(wait([self._death], timeout_s))

    def read(self, timeout_s: float) -> bytes:
        """Return the next message.

        Raises:
            TimeoutError: if it is not whole in time; a part of it may be lost then.
            EOFError: if none comes any more.
        """
        deadline = time.monotonic() + timeout_s
        self._await_bytes(deadline)
        if self._poller is None:  # Windows, where messages come whole
            return self._connection.recv_bytes()
        (size,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size, deadline, there=True))
        if size == -1:
            (size,) = _LONG_LENGTH.unpack(self._read_exactly(_LONG_LENGTH.size, deadline))
        return self._read_exactly(size, deadline, there=size <= _ONE_WRITE)

    def _read_exactly(self, size: int, deadline: float, *, there: bool = False) -> bytes:
        """Return `size` bytes; `there`: the first of them need not be waited for."""
        parts: list[bytes] = []
        left = size
        while left:
            if not there:
                self._await_bytes(deadline)
            there = False
            part = os.read(self._fd, left)
            if not part:
                raise EOFError
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _await_bytes(self, deadline: float) -> None:
        """Wait until the pipe is readable, also at its end; EOFError if the child died first."""
        while True:
            left = deadline - time.monotonic()
            readable, dead = self._look(min(max(left, 0.0), SLICE_S))
            # What it wrote before it died may have come between the looks at pipe and process.
            if readable or (dead and self._look(0.0)[0]):
                return
            if dead:
                raise EOFError
            if left <= 0:
                raise TimeoutError

    def _look(self, timeout_s: float) -> tuple[bool, bool]:
        """Wait for either; return whether the pipe is readable and whether the child is dead."""
        if self._poller is None:
            found = wait([self._connection, self._death], timeout_s)
            return self._connection in found, self._death in found
        ready = {fd for fd, _ in self._poller.poll(timeout_s * 1000)}
        return self._fd in ready, self._death in ready
