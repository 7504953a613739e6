"""SIGINT (Ctrl-C) and SIGTERM end a run between two batches, or the building of one."""

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
    """A context in which the first SIGINT or SIGTERM is only noted; the second acts as it would have.

    Nothing changes in other threads than the main one, where signals cannot be handled, and for a signal that
    is ignored.

    Args:
        announce: called with the name of the first signal; in the signal's handler, so it should be brief.

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
                # None: set by other means than Python's, and could not be put back.
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        # A handler runs between two instructions of whatever is at work, so it does no more than note it.
        if self.received is None:
            self.received = signal.Signals(number).name
            self._announce(self.received)
            return
        # Handlers first, so that the signal does what it would have done without us.
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
    """A context in which SIGTERM raises SystemExit, so that everything is closed, and stops are explained.

    By default SIGTERM would end the process without a message, and leave the folder behind; here it prints
    one line. KeyboardInterrupt gets that line as a note. A handler that was set before stays.

    doing: what the process is doing, for the line.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )

    def end(number: int, frame: FrameType | None) -> None:
        # A second one ends the process at once, should closing hang.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(f"SIGTERM while {doing}", file=sys.stderr, flush=True)
        # An exception, so that every `with` on the way out closes what it holds.
        raise SystemExit(128 + number)

    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        add_note(interrupt, f"SIGINT while {doing}")
        raise
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
