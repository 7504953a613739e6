"""Pipe by which workers wake a process that waits for words and pipes at the same time.

    worker   posts its done word; loads `listening`; writes a byte if it is 1
    main     listening = 1, once; loads the words; sleeps until the pipe is readable
             empties the pipe; loads the words again

Each side writes first and then loads the other's word. So a worker that loads 0 has posted its word before
main loads it, and no wakeup is lost. The pipe is emptied before the words are loaded, so each byte taken out
belongs to a word that main is about to see. Bytes carry no information: some may belong to rows that main has
already seen, and a byte that does not fit into a full pipe is dropped, as one is enough to wake.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

from parllel.system.processes.owned import own


class WakeupPipe:
    """Both ends of the pipe; passed to processes when they start."""

    # A Windows pipe has no descriptor to write a byte to.
    available = sys.platform != "win32"

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        # O_NONBLOCK is shared by all processes with the pipe: a worker never waits for main to empty it.
        for end in (self._reader, self._writer):
            os.set_blocking(end.fileno(), False)
        own(self)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a wakeup."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Make the pipe readable."""
        with contextlib.suppress(BlockingIOError):
            # BlockingIOError: the pipe is full, so main has a wakeup pending already.
            os.write(self._writer.fileno(), b"!")

    def drain(self) -> None:
        """Empty the pipe."""
        # One read empties a Linux pipe; bytes left in a larger one only wake again. OSError: the pipe is
        # empty, or the cage was closed, which its rows report.
        with contextlib.suppress(OSError):
            os.read(self._reader.fileno(), 65536)

    def disown(self, why: str) -> None:
        """Close the read end in a fork, which would otherwise take the owner's wakeup bytes."""
        # The write end stays open: the fork may be a worker.
        self._reader.close()

    def __getstate__(self) -> dict[str, Connection]:
        # A worker that is not a fork gets only the write end.
        return {"_writer": self._writer}

    def close(self) -> None:
        """Close this process's ends. Idempotent."""
        self._reader.close()
        self._writer.close()
