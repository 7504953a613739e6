"""Conversion of SIGTERM to an exception, so that a worker closes its environment and agent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TerminationSignal(BaseException):
    """Raised on SIGTERM. Not an Exception, so that agents and environments do not catch it."""


@contextmanager
def sigterm_raises() -> Iterator[list[int]]:
    """Raise TerminationSignal on SIGTERM inside the context. Does nothing outside the main thread.

    Yields a list that holds the signal once it has arrived, in case other code swallows the exception.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def raise_error(number: int, frame: Any) -> None:
        # Only once: the cleanup that follows must not be interrupted.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signals.append(number)
        raise TerminationSignal

    before = signal.signal(signal.SIGTERM, raise_error)
    try:
        yield signals
    finally:
        if signal.getsignal(signal.SIGTERM) is raise_error:
            signal.signal(signal.SIGTERM, before)
