"""Pipes for standard output and error of an agent's process and its subprocesses::

    agent's process    writes to descriptors 1 and 2; blocks only while a pipe is full
    this process       drain: keeps the first bytes and discards the rest, while it waits for the agent

Python's own output in the agent's process goes through `SharedText` instead, which costs no system call.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from multiprocessing import Pipe

_PIPE_BYTES = 2**18
_CHUNK = 2**16


class OutputPipes:
    """Captures the first `size` bytes written to each of two pipes, stdout and stderr.

    Args:
        size: number of bytes to keep per pipe.

    Attributes:
        theirs: write ends for the child; `started` closes them in this process.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        pairs = [Pipe(duplex=False) for _ in range(2)]
        self._ours = [ours for ours, _ in pairs]
        self.theirs = tuple(theirs for _, theirs in pairs)
        self._kept = {ours.fileno(): bytearray() for ours in self._ours}
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in self._kept:
            # Only our ends: writers block while a pipe is full, as programs expect of their output.
            os.set_blocking(fd, False)
            # A larger pipe means fewer wake-ups for an agent that prints a lot; the system may refuse it.
            if sys.platform == "linux":
                import fcntl

                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def started(self, poller: select.poll) -> None:
        """Register our ends with the poller, and close the child's ends in this process.

        While the child's ends are open here, our ends would never report that the last writer has
        closed.
        """
        self.close_child_ends()
        for fd in self._kept:
            poller.register(fd, select.POLLIN)

    def close_child_ends(self) -> None:
        """Close the child's ends in this process. Idempotent."""
        for theirs in self.theirs:
            theirs.close()

    def drain(self, ready: set[int], poller: select.poll) -> None:
        """Read the pipes that are ready."""
        for fd in ready & self._kept.keys():
            if not self._drain(fd):
                poller.unregister(fd)  # a closed pipe stays ready forever

    def _drain(self, fd: int) -> bool:
        """Read the current content of a pipe. Returns whether it is still open."""
        kept = self._kept[fd]
        # At most one pipe's size: an agent that prints endlessly must not hold its caller here.
        for _ in range(_PIPE_BYTES // _CHUNK):
            room = self._size - len(kept)
            try:
                if room > 0 or not hasattr(os, "splice"):
                    part = os.read(fd, _CHUNK)
                    kept += part[:room]
                    n = len(part)
                else:
                    # Discards without copying: a hundred megabytes take a few milliseconds.
                    n = os.splice(fd, self._nowhere, _PIPE_BYTES)
            except BlockingIOError:
                return True
            # The agent and all programs it has started have closed their ends.
            if n == 0:
                return False
            # Less than asked for means that the pipe is empty: saves a call that would fail.
            if n < _CHUNK:
                return True
        return True

    def take(self) -> tuple[bytes, bytes]:
        """Return the kept bytes of both pipes, and clear them."""
        first, second = (bytes(kept) for kept in self._kept.values())
        for kept in self._kept.values():
            kept.clear()
        return first, second

    def close(self) -> None:
        """Close all ends. Idempotent."""
        self.close_child_ends()
        for ours in self._ours:
            ours.close()
        if self._nowhere >= 0:
            os.close(self._nowhere)
            self._nowhere = -1
