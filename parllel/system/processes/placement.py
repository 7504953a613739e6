"""Keep processes that work at the same time on different cores, without pinning them.

    others         the kernel writes their last core to /proc/<thread>/stat
    this process   reads it every 20 ms, and moves away if it shares a core with one of them

Two processes that wake each other alternately are never both runnable for long, so the scheduler may leave
them on one core, where they take twice as long, spins included. A process that finds itself on the core of
another moves away once; after that the scheduler is free to move it again.
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
    """Move this process away from cores on which certain other threads run; does nothing outside Linux.

    Args:
        others: ids of threads; the id of a process is that of its main thread.
    """

    def __init__(self, others: Sequence[int]) -> None:
        self._files: list[int] = []
        self._due = 0.0
        self._allowed: frozenset[int] = frozenset()
        if hasattr(os, "sched_getaffinity"):
            self._allowed = frozenset(os.sched_getaffinity(0))
        # With fewer cores than threads some have to share one: moving would only cost.
        if len(self._allowed) > len(others):
            for thread in (os.getpid(), *others):
                with contextlib.suppress(OSError):
                    self._files.append(os.open(f"/proc/{thread}/stat", os.O_RDONLY | os.O_CLOEXEC))
        if len(self._files) != 1 + len(others):
            self.close()

    def check(self) -> None:
        """Move away if a core is shared; looks at most every 20 ms, and at the clock in between."""
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
                # Narrowing the mask makes the kernel move the process at once. Widening it again leaves the
                # process where it is, and leaves the choice to the scheduler from now on.
                os.sched_setaffinity(0, free)
                os.sched_setaffinity(0, self._allowed)
        except (OSError, IndexError, ValueError):
            self.close()  # one of them has ended, or a container forbids it

    def close(self) -> None:
        """Close the files; `check` does nothing from now on. May be called twice."""
        files, self._files = self._files, []
        for file in files:
            os.close(file)


def _core_of(file: int) -> int:
    """Return the core on which a thread last ran, read from its open stat file."""
    # After the last parenthesis, as the program's name before it may contain spaces.
    return int(os.pread(file, 1024, 0).rpartition(b")")[2].split()[_PROCESSOR])
