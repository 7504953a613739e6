"""Messages between parent and child, with time-outs and detection of the other side's death.

    parent                                           child
    write    ------ message, over the pipe ------->  read
    read     <----- message, over the pipe --------  write
    _death   <----- the system: child has ended

The format is that of `Connection.send_bytes`, so the other end may be a plain Connection. But `recv_bytes`
blocks for ever if the sender is stopped in the middle of a message, or is killed while another process keeps
the pipe open; and `send_bytes` blocks while the pipe is full. A channel waits for the pipe and the end of the
process together, before each part of a message. A short message takes one `write` and one `read` call.
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
# Bytes to read along with the length, so that a short message takes one call instead of two. Not more: a
# `reduction.send_handle` may follow a longer message, and reading past its end would lose the descriptor.
_SHORT = 12
# Bytes that fit into an empty pipe. The parent sends one request at a time, so the pipe is empty.
_ROOM = 16384


class PipeEnd:
    """One end of a pipe between parent and child.

    Args:
        connection: this end; not closed here.
        death: descriptor or handle that becomes ready when the other side ends. None in a child, which is
            killed when its parent ends, see `liveness`.
        max_bytes: limit for a message that is read, from an untrusted side that may announce any length.
    """

    def __init__(
        self, connection: Connection, death: int | None = None, *, max_bytes: int = sys.maxsize
    ) -> None:
        self._connection = connection
        self._death = death
        self._max_bytes = max_bytes
        self._ahead: list[bytes] = []  # parts of the next message that were already read
        self._readable = False  # whether `poll` has seen bytes that have not been read since
        self._handles: list[Connection | int] = [connection]
        if death is not None:
            self._handles.append(death)
        self._poller = None
        # One poll object for all waits: making one per wait costs more than the step of an environment.
        # Not `select.select`, which refuses descriptors above 1023.
        if hasattr(select, "poll") and sys.platform != "win32":
            self._fd = self._handles[0] = connection.fileno()
            self._poller = select.poll()
            self._poller.register(self._fd, select.POLLIN)
            if death is not None:
                self._poller.register(death, select.POLLIN)

    def poll(self) -> bool:
        """Return whether there is something to read or the other side has ended. Does not wait."""
        if self._ahead:
            return True
        # Only this channel reads the pipe, so the bytes will still be there for `read`.
        self._readable, dead = self._look(0.0)
        return self._readable or dead

    def handles(self) -> Sequence[Connection | int]:
        """Return handles that become ready when `poll` becomes True; empty if bytes were read ahead."""
        # Bytes read ahead have left the pipe, which need not be readable then.
        return () if self._ahead else self._handles

    def await_bytes(self, timeout_s: float) -> None:
        """Wait until part of the next message has arrived. Raises as `read`."""
        # Bytes read ahead have left the pipe, so polling it would miss them.
        if not self._ahead:
            self._await_bytes(timeout_s)

    def write(self, message: bytes, timeout_s: float) -> None:
        """Send a message.

        timeout_s: `math.inf` blocks in the kernel instead of polling. The kernel accepts more than `poll`
            reports room for, so a child can leave its exception in the pipe and exit, even if the parent
            reads it later or never.

        Raises:
            TimeoutError: if the message was not accepted in time. Part of it may have been sent, so the pipe
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
            # A short message fits into the empty pipe, so the request of a step needs no call to poll.
            if size > _ROOM and timeout_s < math.inf:
                timeout_s = self.await_room(timeout_s)
            # In parts: a blocking write of more than the pipe has room for would outlast the time-out.
            left = left[os.write(self._fd, left[:_ROOM]) :]

    def await_room(self, left_s: float) -> float:
        """Wait until a write would not block; return the remaining time.

        Raises: as `write`.
        """
        if self._poller is None:
            return left_s
        # A separate poll object: the channel's must not report room when `read` waits for bytes.
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
        """Return the next message; a time-out of None waits until there is one or the pipe ends.

        Raises:
            TimeoutError: if the message is not complete in time.
            EOFError: if the pipe or the other side ended first.
            ValueError: if the message is longer than `max_bytes`; the pipe cannot be used again.

        If an exception interrupts the read, including KeyboardInterrupt, the next call continues with the
        bytes that have arrived.
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
        # Nothing has been removed from `_ahead` so far, so an interrupted read restarts from the length.
        if len(first) >= end:
            self._ahead = [first[end:]] if len(first) > end else []
            return first[start:end]
        if not 0 <= size <= self._max_bytes:
            raise ValueError(f"a message of {size} bytes: expected at most {self._max_bytes}")
        self._fill(end, left_s)
        parts, self._ahead = self._ahead, []
        parts[0] = first[start:]
        return b"".join(parts)

    def _first(self, size: int, left_s: float | None, more: int = 0) -> tuple[bytes, float | None]:
        """Return at least the next `size` bytes without removing them, and the remaining time.

        Up to `more` bytes beyond `size` may be read.
        """
        if len(self._ahead) != 1 or len(self._ahead[0]) < size:
            left_s = self._fill(size, left_s, more)
            if len(self._ahead) > 1:
                self._ahead = [b"".join(self._ahead)]
        return self._ahead[0], left_s

    def _fill(self, size: int, left_s: float | None, more: int = 0) -> float | None:
        """Read until `_ahead` holds `size` bytes; return the remaining time."""
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
        """Wait until the pipe is readable or at its end; return the remaining time.

        Raises EOFError if the child died first, TimeoutError if nothing arrived in time.
        """
        while True:
            slice_s = SLICE_S if left_s > SLICE_S else max(left_s, 0.0)
            began = monotonic()
            readable, dead = self._look(slice_s)
            # `counted_s` inlined: the call would slow down every step.
            passed_s = monotonic() - began
            left_s -= passed_s if passed_s < slice_s else slice_s
            # The poll may see an empty pipe and then a dead process, if the last message arrived in
            # between. Nothing follows a death, so a second poll is conclusive.
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
