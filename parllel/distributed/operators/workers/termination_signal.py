"""SIGTERM as an exception, so that a worker closes its environment and its agent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TerminationSignal(BaseException):
    """SIGTERM came. No Exception, so that agents and environments let it pass."""


@contextmanager
def sigterm_raises() -> Iterator[list[int]]:
    """Let SIGTERM end what is going on, so that the environment is closed.

    Yields a list that holds the signal once it came: code that catches all exceptions may have kept this one.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def raise_error(number: int, frame: Any) -> None:
        # Once: the environment is closed then, and must not be interrupted.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        came.append(number)
        raise TerminationSignal

    before = signal.signal(signal.SIGTERM, raise_error)
    try:
        yield came
    finally:
        if signal.getsignal(signal.SIGTERM) is raise_error:
            signal.signal(signal.SIGTERM, before)
