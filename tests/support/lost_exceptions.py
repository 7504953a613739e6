"""A signal whose exception is lost."""

from __future__ import annotations

import os
import weakref


class _Thing:
    pass


def lose_exception_of(number):
    """Send this process a signal whose handler runs within a callback of the interpreter."""

    def call_back(reference):
        os.kill(os.getpid(), number)
        for _ in range(10):  # handlers run at the next jump backwards, at the latest
            pass

    thing = _Thing()
    reference = weakref.ref(thing, call_back)
    del thing
    assert reference() is None
