"""Send messages between parent and child, and give up at a time-out or when the other side dies.

    parent                                           child
    write    ------ message, over the pipe ------->  read
    read     <----- message, over the pipe --------  write
    _death   <----- the system: child has ended

The format is that of `Connection.send_bytes`, so the other end may be a plain Connection. But `recv_bytes`
blocks for ever if the sender is stopped in the middle of a message, or killed while another process keeps
the pipe open; and `send_bytes` blocks while the pipe is full. A channel waits for the pipe and for the end of
the process together, before each part of a message. A short message takes one `write` and one `read` call.
"""

from __future__ import annotations

import math
import os
import select
import struct
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from time import monotonic

from parllel.system.counted_time import SLICE_S, counted_s

_LENGTH = struct.Struct("!i")  # -1 announces a longer length
_LONG_LENGTH = struct.Struct("!Q")
_LONGEST = 0x7FFFFFFF
# Bytes to read along with the length, so that a short message takes one call instead of two. Not more:
# `reduction.send_handle` may follow a longer message, and reading past its end would lose the descriptor.
_SHORT = 12
# Bytes that fit into an empty pipe. The parent sends one request at a time, so it finds the pipe empty.
_ROOM = 16384


class PipeEnd:
    """One end of a pipe between parent and child.

    Args:
        connection: this end; the channel uses it but does not close it.
        death: descriptor or handle that becomes ready when the other side ends. None in a child, which
            the system kills when its parent ends, see `liveness`.
        max_bytes: of a message that is read, from a side that may announce any length.
    """

    def __init__(
        self, connection: Connection, death: int | None = None, *, max_bytes: int = sys.maxsize
    ) -> None:
        self._connection = connection
        self._death = death
        self._max_bytes = max_bytes
        self._ahead: list[bytes] = []  # what was read of the next message, in parts
        self._readable = False  # whether `poll` has seen bytes that were not read since
        self._handles: list[Connection | int] = [connection]
        if death is not None:
            self._handles.append(death)
        self._poller = None
        # One poll object for all waits: to make one per wait costs more than the step of an environment.
        # `select.select` would not do instead, as it refuses descriptors above 1023.
        if hasattr(select, "poll") and sys.platform != "win32":
            self._fd = self._handles[0] = connection.fileno()
            self._poller = select.poll()
            self._poller.register(self._fd, select.POLLIN)
            if death is not None:
                self._poller.register(death, select.POLLIN)

    def poll(self) -> bool:
        """Return at once whether there is something to read, or the other side has ended."""
        if self._ahead:
            return True
        # Only this channel reads here, so what is there now still is when it is read.
        self._readable, dead = self._look(0.0)
        return self._readable or dead

    def handles(self) -> Sequence[Connection | int]:
        """Return what is ready when `poll` returns True; empty if it does so for another reason."""
        # What was read ahead has left the pipe, which need not be readable then.
        return () if self._ahead else self._handles

    def await_bytes(self, timeout_s: float) -> None:
        """Wait until part of the next message has come; raise as `read` does."""
        # What was read ahead has left the pipe, so polling the pipe would miss it.
        if not self._ahead:
            self._await_bytes(timeout_s)

    def write(self, message: bytes, timeout_s: float) -> None:
        """Send a message.

        timeout_s: `math.inf` blocks in the kernel instead of polling. The kernel accepts more than `poll`
            reports room for, so a child can leave its exception in the pipe and exit although the parent
            reads it later, or never.

        Raises:
            TimeoutError: if the message was not taken in time. Part of it may have been sent, so the pipe
                cannot be used again.
            BrokenPipeError: if the other side has ended.
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
            # A short message fits into the empty pipe, so a request per step costs no call to poll.
            if size > _ROOM and timeout_s < math.inf:
                timeout_s = self.await_room(timeout_s)
            # In parts: a blocking write of more than there is room for would outlast the time-out.
            left = left[os.write(self._fd, left[:_ROOM]) :]

    def await_room(self, left_s: float) -> float:
        """Wait until a write would not block, and return what is left of the time.

        Raises: as `write` does.
        """
        if self._poller is None:
            return left_s
        # A poll object of its own: that of the channel must not report room where `read` waits for bytes.
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
            if ready:  # also if the other end is closed: writing then raises BrokenPipeError
                return left_s
            if left_s <= 0:
                raise TimeoutError

    def read(self, timeout_s: float | None) -> bytes:
        """Return the next message; None waits until there is one or the pipe ends.

        Raises:
            TimeoutError: if the message is not complete in time.
            EOFError: if the pipe or the other side ended first.
            ValueError: if a longer message than `max_bytes` comes; the pipe cannot be used again.

        If an exception interrupts the read, KeyboardInterrupt included, the next call continues with the
        part of the message that has come.
        """
        if self._poller is None:  # Windows, where the system delivers whole messages
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
        # Nothing has been taken from `_ahead` so far: an interrupted read starts over from the length.
        if len(first) >= end:
            self._ahead = [first[end:]] if len(first) > end else []
            return first[start:end]
        if not 0 <= size <= self._max_bytes:
            raise ValueError(f"a message of {size} bytes, of {self._max_bytes} allowed")
        self._fill(end, left_s)
        parts, self._ahead = self._ahead, []
        parts[0] = first[start:]
        return b"".join(parts)

    def _first(self, size: int, left_s: float | None, more: int = 0) -> tuple[bytes, float | None]:
        """Return the next bytes without taking them, at least `size`, and what is left of the time.

        Up to `more` bytes beyond `size` may be read.
        """
        if len(self._ahead) != 1 or len(self._ahead[0]) < size:
            left_s = self._fill(size, left_s, more)
            if len(self._ahead) > 1:
                self._ahead = [b"".join(self._ahead)]
        return self._ahead[0], left_s

    def _fill(self, size: int, left_s: float | None, more: int = 0) -> float | None:
        """Read until `_ahead` holds `size` bytes, and return what is left of the time."""
        left = size - sum(map(len, self._ahead))
        while left > 0:
            if left_s is not None and not self._readable:
                left_s = self._await_bytes(left_s)
            self._readable = False
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
            # `counted_s` written out: the cost of the call would show in every step.
            passed_s = monotonic() - began
            left_s -= passed_s if passed_s < slice_s else slice_s
            # The poll may see the process dead and the pipe still empty, if the last message came in
            # between. Nothing follows a death, so a second look is certain.
            if readable or (dead and self._look(0.0)[0]):
                return left_s
            if dead:
                raise EOFError
            if left_s <= 0:
                raise TimeoutError

    def _look(self, timeout_s: float) -> tuple[bool, bool]:
        """Wait for either; return whether the pipe is readable and whether the other side has ended."""
        if self._poller is None:
            found = wait(self._handles, timeout_s)
            return self._connection in found, self._death in found
        ready = {fd for fd, _ in self._poller.poll(timeout_s * 1000)}
        return self._fd in ready, self._death in ready
