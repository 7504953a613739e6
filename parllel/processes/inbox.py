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
# Read together with the length: a short message then takes one call instead of two. No more than this, as the
# messages that descriptors follow, which are longer, must not be read past their end.
_SHORT = 12


class Inbox:
    """The messages of a child.

    Args:
        connection: the parent's end of the pipe; the Inbox reads it but does not own it.
        death: descriptor or handle that becomes ready when the child ends.
    """

    def __init__(self, connection: Connection, death: int) -> None:
        self._connection = connection
        self._death = death
        self._ahead = b""  # what was read of the next message
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
            return bool(self._ahead or self._poller.poll(0))
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
        if self._poller is None:  # Windows, where messages come whole
            self._await_bytes(deadline)
            return self._connection.recv_bytes()
        (size,) = _LENGTH.unpack(self._take(_LENGTH.size, deadline, ahead=_SHORT))
        if size == -1:
            (size,) = _LONG_LENGTH.unpack(self._take(_LONG_LENGTH.size, deadline))
        return self._take(size, deadline)

    def _take(self, size: int, deadline: float, ahead: int = 0) -> bytes:
        """Return the next `size` bytes; up to `ahead` more may be read and kept."""
        parts, left = [self._ahead], size - len(self._ahead)
        while left > 0:
            self._await_bytes(deadline)
            part = os.read(self._fd, left + ahead)
            if not part:
                raise EOFError
            parts.append(part)
            left -= len(part)
        whole = b"".join(parts)
        self._ahead = whole[size:]
        return whole[:size]

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
