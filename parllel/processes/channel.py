"""Messages between parent and child, without ever waiting longer than agreed, or for the dead.

    pipe            readable: a message, or the start of one, or the end of the pipe
    process         readable: the child ended. The pipe need not end with it: a grandchild may hold it

The format is that of `Connection.send_bytes`, so either end may use that. What it lacks: `recv_bytes`
waits for the rest of a message that has begun, for ever if its sender was stopped or killed in the
middle and the pipe is held open, and `send_bytes` for room in a pipe that nobody empties. Here each part
of a message is waited for on both. A short message takes one system call in and one out.
"""

from __future__ import annotations

import math
import os
import select
import struct
import sys
from multiprocessing.connection import Connection, wait
from time import monotonic

from parllel.counted_time import SLICE_S, counted_s

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
            self._await_bytes(timeout_s)

    def _waited_for(self) -> list[Connection | int]:
        return [self._connection, *([] if self._death is None else [self._death])]

    def write(self, message: bytes, timeout_s: float) -> None:
        """Send a message.

        timeout_s: `math.inf` leaves the waiting to the kernel, which has room for more than `await_room`
            knows of: a child's last words need nobody who reads them.

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
        while left:
            if size > _ROOM and timeout_s < math.inf:
                timeout_s = self.await_room(timeout_s)
            left = left[os.write(self._fd, left[:_ROOM]) :]

    def await_room(self, left_s: float) -> float:
        """Wait until something can be sent without waiting, and return what is left of the time.

        Raises: as `write` does.
        """
        if self._poller is None:
            return left_s
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        if self._death is not None:
            poller.register(self._death, select.POLLIN)
        while True:
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            ready = {fd for fd, _ in poller.poll(slice_s * 1000)}
            if self._death in ready:
                raise BrokenPipeError
            left_s -= counted_s(began, slice_s)
            if ready:
                return left_s
            if left_s <= 0:
                raise TimeoutError

    def read(self, timeout_s: float | None) -> bytes:
        """Return the next message; None waits until there is one or the pipe ends.

        Raises:
            TimeoutError: if it is not whole in time.
            EOFError: if none comes any more.

        Whatever ends a wait, Ctrl-C too, the part of the message that came is kept for the next call.
        """
        if self._poller is None:  # Windows, where messages come whole
            if timeout_s is not None:
                self._await_bytes(timeout_s)
            return self._connection.recv_bytes()
        start = _LENGTH.size
        first, left_s = self._first(start, timeout_s, more=_SHORT)
        (size,) = _LENGTH.unpack_from(first)
        if size == -1:
            first, left_s = self._first(start + _LONG_LENGTH.size, left_s)
            (size,) = _LONG_LENGTH.unpack_from(first, start)
            start += _LONG_LENGTH.size
        end = start + size
        if len(first) >= end:
            self._ahead = [first[end:]] if len(first) > end else []
            return first[start:end]
        self._fill(end, left_s)
        parts, self._ahead = self._ahead, []
        parts[0] = first[start:]
        return b"".join(parts)

    def _first(self, size: int, left_s: float | None, more: int = 0) -> tuple[bytes, float | None]:
        """Return what was not taken yet, `size` bytes at least, and what is left of the time.

        Up to `more` bytes beyond them may be read.
        """
        if len(self._ahead) != 1 or len(self._ahead[0]) < size:
            left_s = self._fill(size, left_s, more)
            if len(self._ahead) > 1:
                self._ahead = [b"".join(self._ahead)]
        return self._ahead[0], left_s

    def _fill(self, size: int, left_s: float | None, more: int = 0) -> float | None:
        """Read until `size` bytes are there, and return what is left of the time."""
        left = size - sum(map(len, self._ahead))
        while left > 0:
            if left_s is not None:
                left_s = self._await_bytes(left_s)
            part = os.read(self._fd, left + more)
            if not part:
                raise EOFError
            self._ahead.append(part)
            left -= len(part)
        return left_s

    def _await_bytes(self, left_s: float) -> float:
        """Wait until the pipe is readable, also at its end, and return what is left of the time.

        Raises EOFError if the child died first, TimeoutError if nothing came in time.
        """
        while True:
            slice_s = SLICE_S if left_s > SLICE_S else max(left_s, 0.0)
            began = monotonic()
            readable, dead = self._look(slice_s)
            passed_s = monotonic() - began  # as `counted_s`, whose call would show in every step
            left_s -= passed_s if passed_s < slice_s else slice_s
            # What it wrote before it died may have come between the looks at pipe and process.
            if readable or (dead and self._look(0.0)[0]):
                return left_s
            if dead:
                raise EOFError
            if left_s <= 0:
                raise TimeoutError

    def _look(self, timeout_s: float) -> tuple[bool, bool]:
        """Wait for either; return whether the pipe is readable and whether the child is dead."""
        if self._poller is None:
            found = wait(self._waited_for(), timeout_s)
            return self._connection in found, self._death in found
        ready = {fd for fd, _ in self._poller.poll(timeout_s * 1000)}
        return self._fd in ready, self._death in ready
