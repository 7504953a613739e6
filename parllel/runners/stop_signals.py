"""Ctrl-C and a polite kill end a run between two batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """Within it SIGINT and SIGTERM are noted instead of raised; the second one acts as it would have.

    Where signals can't be handled (in any but the main thread), and for a signal that is ignored, everything
    stays as it is.

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
        if self.received is None:
            self.received = signal.Signals(number).name
            self._announce(self.received)
            return
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
