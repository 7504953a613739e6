"""Messages between parent and child, without ever waiting longer than agreed, or for the dead.

    pipe            readable: a message, or the start of one, or the end of the pipe
    process         readable: the child ended. The pipe need not end with it: a grandchild may hold it

The format is that of `Connection.send_bytes`, so either end may use that. What it lacks: `recv_bytes`
waits for the rest of a message that has begun, for ever if its sender was stopped or killed in the
middle and the pipe is held open, and `send_bytes` for room in a pipe that nobody empties. Here each part
of a message is waited for on both. A short message takes one system call in and one out.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from multiprocessing.connection import Connection, wait

_LONGEST_S = 1e6  # poll takes no time-outs of many weeks; nobody can tell these from endless ones
SLICE_S = 1.0  # a wait is cut into slices, so that a clock or signal oddity cannot make it endless
_LENGTH = struct.Struct("!i")  # -1 announces a longer length
_LONG_LENGTH = struct.Struct("!Q")
_LONGEST = 0x7FFFFFFF
# Read together with the length: a short message then takes one call instead of two. No more than
# this, as messages that descriptors follow, which are longer, must not be read past their end.
_SHORT = 12
# An empty pipe has room for this. Only one request is under way at a time, so the pipe is empty.
_ROOM = 16384


class Channel:
    """One end of a pipe between parent and child.

    Args:
        connection: this end; the channel uses it but does not own it.
        death: descriptor or handle that becomes ready when the other side ends; None in a child, whose
            life ends with its parent's anyway: its reads have no time-out.
    """

    def __init__(self, connection: Connection, death: int | None = None) -> None:
        self._connection = connection
        self._death = death
        self._ahead: list[bytes] = []  # what was read of the next message, in parts
        self._poller = None
        # One object for all waits: making one per wait costs more than a step.
        if hasattr(select, "poll") and sys.platform != "win32":
            self._fd = connection.fileno()
            self._poller = select.poll()
            self._poller.register(self._fd, select.POLLIN)
            if death is not None:
                self._poller.register(death, select.POLLIN)

    def poll(self) -> bool:
        """Return at once whether there is something to read, or the child is dead."""
        if self._poller is not None:
            return bool(self._ahead or self._poller.poll(0))
        return bool(wait(self._waited_for(), 0))

    def await_bytes(self, timeout_s: float) -> None:
        """Wait until something of the next message is there; raise as `read` does."""
        if not self._ahead:
            self._await_bytes(time.monotonic() + timeout_s)

    def _waited_for(self) -> list[Connection | int]:
        return [self._connection, *([] if self._death is None else [self._death])]

    def await_death(self, timeout_s: float) -> bool:
        """Wait for the end of the other side; return whether it came."""
        return bool(wait([self._death] if self._death is not None else [], timeout_s))

    def write(self, message: bytes, timeout_s: float) -> None:
        """Send a message.

        Raises:
            TimeoutError: if there was no room for all of it in time; the pipe is useless then.
            BrokenPipeError: if the other side is gone.
        """
        if self._poller is None:  # Windows
            self._connection.send_bytes(message)
            return
        size = len(message)
        head = (
            _LENGTH.pack(size) if size <= _LONGEST else _LENGTH.pack(-1) + _LONG_LENGTH.pack(size)
        )
        left = memoryview(head + message)
        deadline = time.monotonic() + timeout_s
        while left:
            if size > _ROOM:
                self._await_room(deadline)
            left = left[os.write(self._fd, left[:_ROOM]) :]

    def _await_room(self, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        if self._death is not None:
            poller.register(self._death, select.POLLIN)
        left = max(deadline - time.monotonic(), 0.0)
        ready = {fd for fd, _ in poller.poll(None if left > _LONGEST_S else left * 1000)}
        if self._death in ready:
            raise BrokenPipeError
        if not ready:
            raise TimeoutError

    def read(self, timeout_s: float | None) -> bytes:
        """Return the next message; None waits until there is one or the pipe ends.

        Raises:
            TimeoutError: if it is not whole in time.
            EOFError: if none comes any more.

        Whatever ends a wait, Ctrl-C too, the part of the message that came is kept for the next call.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if self._poller is None:  # Windows, where messages come whole
            if deadline is not None:
                self._await_bytes(deadline)
            return self._connection.recv_bytes()
        start = _LENGTH.size
        first = self._first(start, deadline, more=_SHORT)
        (size,) = _LENGTH.unpack_from(first)
        if size == -1:
            first = self._first(start + _LONG_LENGTH.size, deadline)
            (size,) = _LONG_LENGTH.unpack_from(first, start)
            start += _LONG_LENGTH.size
        end = start + size
        if len(first) >= end:
            self._ahead = [first[end:]] if len(first) > end else []
            return first[start:end]
        self._fill(end, deadline)
        parts, self._ahead = self._ahead, []
        parts[0] = first[start:]
        return b"".join(parts)

    def _first(self, size: int, deadline: float | None, more: int = 0) -> bytes:
        """Return what was not taken yet, `size` bytes at least; up to `more` beyond them may be read."""
        if len(self._ahead) != 1 or len(self._ahead[0]) < size:
            self._fill(size, deadline, more)
            if len(self._ahead) > 1:
                self._ahead = [b"".join(self._ahead)]
        return self._ahead[0]

    def _fill(self, size: int, deadline: float | None, more: int = 0) -> None:
        left = size - sum(map(len, self._ahead))
        while left > 0:
            if deadline is not None:
                self._await_bytes(deadline)
            part = os.read(self._fd, left + more)
            if not part:
                raise EOFError
            self._ahead.append(part)
            left -= len(part)

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
            found = wait(self._waited_for(), timeout_s)
            return self._connection in found, self._death in found
        ready = {fd for fd, _ in self._poller.poll(timeout_s * 1000)}
        return self._fd in ready, self._death in ready
