from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LONG_S = 30.0  # for what takes a moment on an idle machine


def until(condition: Callable[[], object]) -> None:
    """Return once something is true."""
    limit = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < limit, "it did not come true"
        time.sleep(0.002)


@contextmanager
def lasting(*, least_s: float = 0.0, most_s: float = LONG_S / 2) -> Iterator[None]:
    """Fail if a block takes less time, or more."""
    began = time.monotonic()
    yield
    assert least_s <= time.monotonic() - began < most_s


@contextmanager
def soon(call: Callable[..., object], *args: Any, after_s: float = 0.05) -> Iterator[None]:
    """Make a call from another thread, in the course of a block."""
    timer = threading.Timer(after_s, call, args)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def alarm(after_s: float) -> Iterator[None]:
    """Expect a KeyboardInterrupt in this block, which is raised as by Ctrl-C."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt("by the alarm")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        with pytest.raises(KeyboardInterrupt, match="by the alarm"):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
