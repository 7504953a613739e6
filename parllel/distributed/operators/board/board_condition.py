"""Lock over everything that a board shows, with a version that grows with each change.

    threads of cards and requests      with condition: ...; condition.note()     change what is shown
    threads of cards                   with condition: ... condition.wait(s)     wait for another's change
    each of them                       on leaving `with`: calls the listeners, without the lock
    listeners                          look(), later, in their own threads

A listener is not called again until somebody has looked. With thousands of steps a second, changes are
announced only as often as they can be shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType


class BoardCondition:
    """Reentrant lock of a board, which calls listeners after changes.

    Attributes:
        version: the number of changes so far.
    """

    def __init__(self) -> None:
        self.version = 0
        self._condition = threading.Condition(threading.RLock())
        self._listeners: dict[int, Callable[[], None]] = {}
        self._n_listeners = 0
        # Of the thread that holds the lock: nesting depth, and whether it has changed anything.
        self._depth, self._changed = 0, False
        self._is_announced = False  # whether listeners were called since the last look

    def __enter__(self) -> BoardCondition:
        # Reentrant: methods that change several cards call those that change one.
        self._condition.acquire()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        calls: list[Callable[[], None]] = []
        self._depth -= 1
        if not self._depth and self._changed:
            # Only at the outermost exit, so that everything done in one `with` counts as one change.
            self._changed = False
            self.version += 1
            # notify_all: every waiting thread waits for something different, and there are few of them.
            self._condition.notify_all()
            if not self._is_announced:
                self._is_announced = True
                calls = list(self._listeners.values())
        self._condition.release()
        # Without the lock: a listener may take a lock of its own, whose holder may be waiting for this one.
        for changed in calls:
            changed()

    def note(self) -> None:
        """Record a change. Call with the lock held."""
        self._changed = True

    def wait(self, timeout_s: float) -> None:
        """Wait until another thread has changed something. Call with the lock held, before any change."""
        # A change before the wait would be announced only after it, which may be long.
        assert not self._changed
        assert self._depth == 1  # an outer `with` would believe that it still held the lock
        # While this thread waits, others take the lock and count their own depth.
        self._depth = 0
        try:
            self._condition.wait(timeout_s)
        finally:
            self._depth = 1

    @contextmanager
    def look(self) -> Iterator[int]:
        """Hold the lock and yield the version, to read what is shown."""
        with self:
            # Reset under the lock of the reads: any later change is announced again.
            self._is_announced = False
            yield self.version

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after changes, from any thread. Returns a function that cancels this."""
        with self._condition:
            self._n_listeners += 1
            number = self._n_listeners
            self._listeners[number] = changed
            # At worst the other listeners are called once too often: who has looked is not known.
            self._is_announced = False

        def end() -> None:
            with self._condition:
                self._listeners.pop(number, None)

        return end
