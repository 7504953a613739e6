"""Where processes sleep that wait with semaphores: a slot for each process, made before they start.

    word 0       how many slots are taken               written under a lock, by a process that takes one
    word 1 + k   the line that slot k sleeps on, plus   written by the process that has slot k,
                 one; 0 while it is awake               read by all that post or wake
    semaphore k  released by those that post or wake, acquired by the process that has slot k

A process waits for one line at a time, so one semaphore each is enough. A process that posts on a line looks
which slots sleep on it and releases their semaphores. A release too many wakes a process for nothing, and it
looks and sleeps again.
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
    """Semaphores and the words that say who sleeps where; goes to children when they start.

    Args:
        n_lines: how many lines there are.
        n_waiters: how many processes will sleep, this one included; a replaced one counts again.

    Raises:
        ValueError: if either is less than 1.

    A fork inherits them. They are pickled only while a process is started, as semaphores are.
    """

    def __init__(self, n_lines: int, n_waiters: int) -> None:
        if n_lines < 1 or n_waiters < 1:
            raise ValueError(
                f"sleep_slots: expected at least 1 line and 1 waiter, got {n_lines} and {n_waiters}"
            )
        self.n_lines = n_lines
        self.n_waiters = n_waiters
        # Those of the spawn context suit every start method.
        context = get_context("spawn")
        self._taking = context.Lock()
        self._semaphores = [context.Semaphore(0) for _ in range(n_waiters)]
        # The memory below multiprocessing's own arrays: theirs stays mapped when they are gone.
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
        """Remove the names by which starting processes find the semaphores; those that have them keep them.

        So no file stays in /dev/shm when this process is killed. From then on the slots can be given to
        forks only.
        """
        locks: list[Any] = [self._taking, *self._semaphores]
        names = {lock._semlock.name for lock in locks}
        registry: dict[Any, Any] = util._finalizer_registry  # type: ignore[attr-defined]
        for finalizer in list(registry.values()):
            # What would remove a name at the end of this process does so now, and then no more.
            if finalizer._callback is SemLock._cleanup and finalizer._args[0] in names:  # type: ignore[attr-defined]
                finalizer()

    @staticmethod
    def fence() -> None:
        """Order all loads and stores before against all after, on any machine.

        What comes before a release stays before it, what comes after an acquisition stays after it, and an
        acquisition is not moved before a release. The lock is a new one, so that threads do not wait for
        each other.
        """
        lock = threading.Lock()
        lock.acquire()
        lock.release()
        lock.acquire()

    def acquire_slot(self, line: int) -> int:
        """Say that this process sleeps on a line, and return its slot.

        The caller then looks at the word again, and sleeps only if it is still the old one.

        Raises:
            RuntimeError: if more processes sleep than were announced.
        """
        pid = os.getpid()
        # A fork has a copy of this object, with the slot of its parent.
        if self._mine[0] != pid:
            self._mine = (pid, self._take())
        sleep_slot = self._mine[1]
        self._words[1 + sleep_slot] = line + 1
        # Releases are left from posts that came before the sleep: they would end the next one at once.
        while self._semaphores[sleep_slot].acquire(False):
            pass
        # The slot must be visible before the caller looks at the word again, else both sides could miss
        # each other: the poster an old slot, the sleeper an old word.
        self.fence()
        return sleep_slot

    def sleep(self, sleep_slot: int, seconds: float) -> None:
        """Sleep until woken, at most for `seconds`."""
        self._semaphores[sleep_slot].acquire(True, seconds)

    def release_slot(self, sleep_slot: int) -> None:
        """Say that this process does not sleep."""
        # Without a fence: a poster that still sees it asleep releases once too often, no more.
        self._words[1 + sleep_slot] = 0

    def wake(self, line: int) -> None:
        """Wake all that sleep on a line; call it after storing what they shall see."""
        # The store must be visible before the slots are read; see `acquire_slot` for the other side.
        self.fence()
        # All words at once, which is quicker than one by one: a slot that is taken meanwhile sees the store.
        sleeping = self._words.tolist()
        for sleep_slot in range(self.n_waiters):
            if sleeping[1 + sleep_slot] == line + 1:
                self._semaphores[sleep_slot].release()

    def _take(self) -> int:
        # A process that is killed while it holds the lock keeps it for ever.
        if not self._taking.acquire(timeout=_TAKE_TIMEOUT_S):
            raise RuntimeError(
                "sleep_slots: a process ended while it took one; expected new sleep_slots"
            )
        try:
            sleep_slot = self._words[0]
            if sleep_slot >= self.n_waiters:
                raise RuntimeError(
                    f"sleep_slots: expected at most {self.n_waiters} processes that wait, got one more"
                )
            self._words[0] = sleep_slot + 1
            return sleep_slot
        finally:
            self._taking.release()
