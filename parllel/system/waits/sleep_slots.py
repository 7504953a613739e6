"""Slots in which processes sleep on semaphores: one per process, made before they start.

    word 0       number of taken slots                  written under a lock, by a process that takes one
    word 1 + k   the line that slot k sleeps on, plus   written by the process that has slot k,
                 one; 0 while it is awake               read by all that post or wake
    semaphore k  released by those that post or wake, acquired by the process that has slot k

A process waits for one line at a time, so it needs only one semaphore. A process that posts on a line
releases the semaphores of all slots that sleep on it. After an extra release a process wakes up, checks its
line, and sleeps again.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import get_context, util
from multiprocessing.heap import Arena
from multiprocessing.synchronize import SemLock
from typing import Any

_TAKE_TIMEOUT_S = 5.0


class SleepSlots:
    """Semaphores, and words that record who sleeps on which line. Passed to children at their start.

    Args:
        n_lines: number of lines.
        n_waiters: number of processes that will sleep, including this one; a replacement counts again.

    Raises:
        ValueError: if either is less than 1.

    A fork inherits them. Like semaphores, they can be pickled only while a process starts.
    """

    def __init__(self, n_lines: int, n_waiters: int) -> None:
        if n_lines < 1 or n_waiters < 1:
            raise ValueError(
                f"sleep_slots: expected at least 1 line and 1 waiter, got {n_lines} and {n_waiters}"
            )
        self.n_lines = n_lines
        self.n_waiters = n_waiters
        # Semaphores of the spawn context work with every start method.
        context = get_context("spawn")
        self._taking = context.Lock()
        self._semaphores = [context.Semaphore(0) for _ in range(n_waiters)]
        # Not multiprocessing's arrays, whose memory stays mapped after them.
        self._arena = Arena(4 * (1 + n_waiters))
        self._set_up()

    def _set_up(self) -> None:
        self._words = memoryview(self._arena.buffer).cast("B").cast("i")
        self._mine = (0, -1)  # process, sleep_slot

    def __getstate__(self) -> dict[str, Any]:
        names = ("n_lines", "n_waiters", "_taking", "_semaphores", "_arena")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._set_up()

    def forget_names(self) -> None:
        """Unlink the semaphores, whose names are needed only while processes start.

        This leaves no file in /dev/shm if this process is killed. Afterwards only forks can use the
        slots.
        """
        locks: list[Any] = [self._taking, *self._semaphores]
        names = {lock._semlock.name for lock in locks}
        registry: dict[Any, Any] = util._finalizer_registry  # type: ignore[attr-defined]
        for finalizer in list(registry.values()):
            # Runs the finalizer that would remove the name at exit; it runs only once.
            if finalizer._callback is SemLock._cleanup and finalizer._args[0] in names:  # type: ignore[attr-defined]
                finalizer()

    @staticmethod
    def fence() -> None:
        """Full memory fence: orders all earlier loads and stores before all later ones, on any machine.

        Accesses before a release stay before it, accesses after an acquisition stay after it, and an
        acquisition does not move before a release. A new lock is used, so that threads do not contend.
        """
        lock = threading.Lock()
        lock.acquire()
        lock.release()
        lock.acquire()

    def acquire_slot(self, line: int) -> int:
        """Mark this process as sleeping on a line; return its slot.

        The caller then checks the word again, and sleeps only if it is unchanged.

        Raises:
            RuntimeError: if more than `n_waiters` processes sleep.
        """
        pid = os.getpid()
        # A fork has a copy of this object with its parent's slot, and needs its own.
        if self._mine[0] != pid:
            self._mine = (pid, self._take())
        sleep_slot = self._mine[1]
        self._words[1 + sleep_slot] = line + 1
        # Drops releases left by earlier posts, which would end the sleep immediately.
        while self._semaphores[sleep_slot].acquire(False):
            pass
        # The slot must be visible before the caller checks the word again. Otherwise both sides could miss
        # each other: the poster by an old slot, the sleeper by an old word.
        self.fence()
        return sleep_slot

    def sleep(self, sleep_slot: int, seconds: float) -> None:
        """Sleep until woken, at most for `seconds`."""
        self._semaphores[sleep_slot].acquire(True, seconds)

    def release_slot(self, sleep_slot: int) -> None:
        """Mark this process as awake."""
        # Without a fence: a poster that still sees it asleep only releases once too often.
        self._words[1 + sleep_slot] = 0

    def wake(self, line: int) -> None:
        """Wake all sleepers of a line; call it after the store that they must see."""
        # The store must be visible before the slots are read; `acquire_slot` has the counterpart.
        self.fence()
        # Reads all words at once, which is faster; a process that takes a slot meanwhile sees the store.
        sleeping = self._words.tolist()
        for sleep_slot in range(self.n_waiters):
            if sleeping[1 + sleep_slot] == line + 1:
                self._semaphores[sleep_slot].release()

    def _take(self) -> int:
        # With a time-out, as a process killed while it holds the lock never releases it.
        if not self._taking.acquire(timeout=_TAKE_TIMEOUT_S):
            raise RuntimeError(
                "sleep_slots: a process ended while it was taking a slot; create new sleep_slots"
            )
        try:
            sleep_slot = self._words[0]
            if sleep_slot >= self.n_waiters:
                raise RuntimeError(
                    f"sleep_slots: expected at most {self.n_waiters} waiting processes, got one "
                    "more"
                )
            self._words[0] = sleep_slot + 1
            return sleep_slot
        finally:
            self._taking.release()
