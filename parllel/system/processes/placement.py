"""Placement of concurrent processes on different cores, without pinning.

    others         the kernel writes their last core to /proc/<thread>/stat
    this process   reads it every 20 ms, and moves to another core if it shares one

Two processes that wake each other alternately are never both runnable for long, so the scheduler may leave
them on one core, where they take twice as long, spins included. A process that shares a core with another
moves away once; the scheduler is then free to move it again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

_EVERY_S = 0.02
# Index of `processor` among the fields of /proc/<thread>/stat after the program's name.
_PROCESSOR = 36


class Placement:
    """Moves this process away from cores used by given threads. Does nothing outside Linux.

    Args:
        others: ids of threads; the id of a process is that of its main thread.
    """

    def __init__(self, others: Sequence[int]) -> None:
        self._files: list[int] = []
        self._due = 0.0
        self._allowed: frozenset[int] = frozenset()
        if hasattr(os, "sched_getaffinity"):
            self._allowed = frozenset(os.sched_getaffinity(0))
        # With fewer cores than threads some must share one, and moving is useless.
        if len(self._allowed) > len(others):
            for thread in (os.getpid(), *others):
                with contextlib.suppress(OSError):
                    self._files.append(os.open(f"/proc/{thread}/stat", os.O_RDONLY | os.O_CLOEXEC))
        if len(self._files) != 1 + len(others):
            self.close()

    def check(self) -> None:
        """Move away if a core is shared. Checks at most every 20 ms, and otherwise only reads the clock."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _EVERY_S
            if self._files:
                self._part()

    def _part(self) -> None:
        try:
            mine, *theirs = map(_core_of, self._files)
            free = self._allowed.difference(theirs)
            if mine in theirs and free:
                # Narrowing the mask makes the kernel move the process immediately. Widening it again leaves
                # the process where it is, and gives the choice back to the scheduler.
                os.sched_setaffinity(0, free)
                os.sched_setaffinity(0, self._allowed)
        except (OSError, IndexError, ValueError):
            self.close()  # one of the threads has ended, or a container forbids it

    def close(self) -> None:
        """Close the files, after which `check` does nothing. Idempotent."""
        files, self._files = self._files, []
        for file in files:
            os.close(file)


def _core_of(file: int) -> int:
    """Return the core on which a thread last ran, from its open stat file."""
    # After the last parenthesis, as the program's name may contain spaces.
    return int(os.pread(file, 1024, 0).rpartition(b")")[2].split()[_PROCESSOR])
