"""One lock for all that a board shows, and a number that grows with each change.

    threads of cards and of requests   with changes: ...; changes.note()     change what is shown
    threads of cards                   with changes: ... changes.wait(s)     until another has changed it
    all of them                        after `with`: the listeners, without the lock
    listeners                          look(), later, in a thread of their own

A listener is not called again before somebody has looked: of thousands of steps a second, as many are
announced as can be shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType


class Changes:
    """The lock of a board, reentrant, and who is called after changes.

    Attributes:
        version: how many changes there were.
    """

    def __init__(self) -> None:
        self.version = 0
        self._condition = threading.Condition(threading.RLock())
        self._listeners: dict[int, Callable[[], None]] = {}
        self._n_listeners = 0
        # Of the thread that holds the lock: how often, and whether it has changed anything.
        self._depth, self._changed = 0, False
        self._is_announced = False  # since somebody looked

    def __enter__(self) -> Changes:
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
            self._changed = False
            self.version += 1
            self._condition.notify_all()
            if not self._is_announced:
                self._is_announced = True
                calls = list(self._listeners.values())
        self._condition.release()
        # Without the lock: a listener may have one of its own, which is held by another who waits for this.
        for changed in calls:
            changed()

    def note(self) -> None:
        """Note, within the lock, that something has changed."""
        self._changed = True

    def wait(self, timeout_s: float) -> None:
        """Wait, within the lock and before any change, until another thread has changed something."""
        assert not self._changed
        assert self._depth == 1
        self._depth = 0
        try:
            self._condition.wait(timeout_s)
        finally:
            self._depth = 1

    @contextmanager
    def look(self) -> Iterator[int]:
        """Hold the lock to look at all that is shown; gives the version."""
        with self:
            self._is_announced = False
            yield self.version

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function after changes, in any thread; return what ends that."""
        with self._condition:
            self._n_listeners += 1
            number = self._n_listeners
            self._listeners[number] = changed
            self._is_announced = False

        def end() -> None:
            with self._condition:
                self._listeners.pop(number, None)

        return end
