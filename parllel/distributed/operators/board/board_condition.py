"""One lock for all that a board shows, and a number that grows with each change.

    threads of cards and of requests   with condition: ...; condition.note()     change what is shown
    threads of cards                   with condition: ... condition.wait(s)     until another has changed it
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


class BoardCondition:
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

    def __enter__(self) -> BoardCondition:
        # Reentrant, as methods that change a card are called by those that change several.
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
            # At the outermost exit alone: what is done within one `with` is seen as one change.
            self._changed = False
            self.version += 1
            # All: each waits for something else, and the threads are few.
            self._condition.notify_all()
            if not self._is_announced:
                self._is_announced = True
                calls = list(self._listeners.values())
        self._condition.release()
        # Without the lock: a listener may have a lock of its own, whose holder may wait for this one.
        for changed in calls:
            changed()

    def note(self) -> None:
        """Note, within the lock, that something has changed."""
        self._changed = True

    def wait(self, timeout_s: float) -> None:
        """Wait, within the lock and before any change, until another thread has changed something."""
        # A change before it would be announced only after the wait, which may be long.
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
            # In one piece with what is looked at: a change that comes after is announced again.
            self._is_announced = False
            yield self.version

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function after changes, in any thread; return what ends that."""
        with self._condition:
            self._n_listeners += 1
            number = self._n_listeners
            self._listeners[number] = changed
            # Of the others too, at most once too often: it cannot be known who has looked.
            self._is_announced = False

        def end() -> None:
            with self._condition:
                self._listeners.pop(number, None)

        return end
