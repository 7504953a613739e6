"""Keep processes that work at the same time on different cores, without pinning them.

Two processes that wake each other in turn are never both runnable for long, so the scheduler may see no
reason to part them: they stay on one core and take twice as long, spins included. Who finds itself on the
core of another moves away once; the scheduler may move it on from there as any process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

_EVERY_S = 0.02
_PROCESSOR = 36  # of the fields of /proc/.../stat that follow the name


class Placement:
    """Move this process away from cores on which certain others run; Linux only, elsewhere it does nothing.

    Args:
        others: ids of threads, or of processes for their first thread.
    """

    def __init__(self, others: Sequence[int]) -> None:
        self._files: list[int] = []
        self._due = 0.0
        self._allowed: frozenset[int] = frozenset()
        if hasattr(os, "sched_getaffinity"):
            self._allowed = frozenset(os.sched_getaffinity(0))
        if len(self._allowed) > len(others):
            for thread in (os.getpid(), *others):
                with contextlib.suppress(OSError):
                    self._files.append(os.open(f"/proc/{thread}/stat", os.O_RDONLY | os.O_CLOEXEC))
        if len(self._files) != 1 + len(others):
            self.close()

    def check(self) -> None:
        """Move if need be, at most every 20 ms; in between it costs a look at the clock."""
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
                os.sched_setaffinity(0, free)
                os.sched_setaffinity(0, self._allowed)
        except (OSError, IndexError, ValueError):  # one of them has ended, or there is no such file
            self.close()

    def close(self) -> None:
        """Do nothing from now on; may be called twice."""
        files, self._files = self._files, []
        for file in files:
            os.close(file)


def _core_of(file: int) -> int:
    """Return the core that a thread last ran on."""
    return int(os.pread(file, 1024, 0).rpartition(b")")[2].split()[_PROCESSOR])
