"""The standard output and error of an agent's process, and of what it has started.

    agent's process    writes to descriptors 1 and 2; blocks only while a pipe is full
    this process       drain: keeps the first bytes, throws the rest away, whenever it waits for the agent

What Python itself prints there takes the way of `SharedText` instead, which costs no system call.
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
    """Two pipes, of which the first bytes are kept.

    Args:
        size: bytes to keep of each.

    Attributes:
        theirs: the ends that the child writes to; `started` closes them here.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        pairs = [Pipe(duplex=False) for _ in range(2)]
        self._ours = [ours for ours, _ in pairs]
        self.theirs = tuple(theirs for _, theirs in pairs)
        self._kept = {ours.fileno(): bytearray() for ours in self._ours}
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in self._kept:
            os.set_blocking(fd, False)
            # Fewer wake-ups for an agent that prints much; the system may refuse more than its own size.
            if sys.platform == "linux":
                import fcntl

                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def started(self, poller: select.poll) -> None:
        """Close the child's ends here, so that ours hang up with the last writer, and register ours."""
        self.close_child_ends()
        for fd in self._kept:
            poller.register(fd, select.POLLIN)

    def close_child_ends(self) -> None:
        """Close the child's ends; may be called twice."""
        for theirs in self.theirs:
            theirs.close()

    def drain(self, ready: set[int], poller: select.poll) -> None:
        """Read what there is in those pipes that are ready."""
        for fd in ready & self._kept.keys():
            if not self._drain(fd):
                poller.unregister(fd)  # closed for good: it would be ready for ever

    def _drain(self, fd: int) -> bool:
        """Read what one pipe holds at this moment; return whether more may come."""
        kept = self._kept[fd]
        # At most what the pipe holds: an agent that prints without an end must not keep its caller here.
        for _ in range(_PIPE_BYTES // _CHUNK):
            room = self._size - len(kept)
            try:
                if room > 0 or not hasattr(os, "splice"):
                    part = os.read(fd, _CHUNK)
                    kept += part[:room]
                    n = len(part)
                else:
                    # Nothing is copied: a hundred megabytes cost some milliseconds.
                    n = os.splice(fd, self._nowhere, _PIPE_BYTES)
            except BlockingIOError:
                return True
            if n == 0:
                return False
            if n < _CHUNK:
                return True
        return True

    def take(self) -> tuple[bytes, bytes]:
        """Return what was kept, and forget it."""
        first, second = (bytes(kept) for kept in self._kept.values())
        for kept in self._kept.values():
            kept.clear()
        return first, second

    def close(self) -> None:
        """Close all ends; may be called twice."""
        self.close_child_ends()
        for ours in self._ours:
            ours.close()
        if self._nowhere >= 0:
            os.close(self._nowhere)
            self._nowhere = -1
