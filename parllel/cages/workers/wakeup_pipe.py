"""A pipe by which workers wake a process that waits for words and for pipes at the same time.

    worker   posts its done word; loads `listening`; writes a byte if it is 1
    main     listening = 1, once; loads the words; sleeps until the pipe is readable
             empties the pipe; loads the words again

Each side writes first and loads what the other writes after: so a worker that finds 0 posted its word before
main loads it, and no byte is missed. The pipe is emptied before the words are loaded: each byte that is taken
out belongs to a word that main is about to see. Bytes say nothing themselves: there may be too many, of rows
that main has seen before, and those that find the pipe full are dropped, since one wakes as well as many.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

from parllel.system.processes.owned import own


class WakeupPipe:
    """Both ends of the pipe; to be handed over when processes start."""

    # A pipe of Windows has no descriptor to write a byte to.
    available = sys.platform != "win32"

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        # Of the pipe itself, so in every process: a worker never waits for main to empty it.
        for end in (self._reader, self._writer):
            os.set_blocking(end.fileno(), False)
        own(self)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Make the pipe readable."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer.fileno(), b"!")

    def drain(self) -> None:
        """Read out what has been written."""
        # All at once, as the pipe of Linux holds no more; what a larger one keeps wakes once more. There may
        # be nothing, and that a cage was closed is reported by its rows.
        with contextlib.suppress(OSError):
            os.read(self._reader.fileno(), 65536)

    def disown(self, why: str) -> None:
        """Give up the reader's end, in a fork: what it took out would not wake the owner."""
        # Not the other: the fork may be a worker, which wakes.
        self._reader.close()

    def __getstate__(self) -> dict[str, Connection]:
        # A worker that is not a fork gets its own end alone.
        return {"_writer": self._writer}

    def close(self) -> None:
        """Close the ends of this process; may be called twice."""
        self._reader.close()
        self._writer.close()
