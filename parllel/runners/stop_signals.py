"""Handling of SIGINT (Ctrl-C) and SIGTERM during a run and while it is built."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from parllel.errors import add_note


class StopSignals:
    """Context manager that records the first SIGINT or SIGTERM. A second signal has its usual effect.

    It has no effect outside the main thread, where signals cannot be handled, or for ignored
    signals.

    Args:
        announce: function called with the name of the first signal. It runs in the signal handler,
            so it should be brief.

    Attributes:
        received: name of the first signal, or None.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.received: str | None = None
        self._announce = announce
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                # None: a handler not installed from Python, which could not be restored.
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        # A handler interrupts the main thread at any instruction, so it only records the signal.
        if self.received is None:
            self.received = signal.Signals(number).name
            self._announce(self.received)
            return
        # Handlers first, so that the signal has its original effect.
        self._restore()
        signal.raise_signal(number)

    def _restore(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            signal.signal(number, before)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()


@contextmanager
def stop_named(doing: str) -> Iterator[None]:
    """Context manager in which SIGTERM prints one line and raises SystemExit, so that resources are closed.

    By default SIGTERM ends the process without a message and leaves the folder behind. The line is
    added to a KeyboardInterrupt as a note. A handler that was installed earlier is kept.

    doing: description of what the process is doing, for the line.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )

    stopped: list[SystemExit] = []

    def end(number: int, frame: FrameType | None) -> None:
        # A second SIGTERM ends the process at once, in case closing hangs.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(f"SIGTERM while {doing}", file=sys.stderr, flush=True)
        # An exception, so that every `with` on the way out closes what it holds.
        stopped.append(SystemExit(128 + number))
        raise stopped[0]

    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
        if stopped:  # the exception was lost within a callback of the interpreter
            raise stopped[0]
    except KeyboardInterrupt as interrupt:
        add_note(interrupt, f"SIGINT while {doing}")
        raise
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
