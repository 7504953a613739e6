"""Signals that raise an exception in the main thread, so that `with` blocks close what they hold."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any


class RaisedSignals(AbstractContextManager["RaisedSignals"]):
    """Context manager in which signals raise exceptions.

    An exception that a handler raises is lost within a callback of the interpreter, such as those of weak
    references, and below code that catches everything. So loops call `check`, above all those that wait.
    Python reports what is lost in a callback, except exceptions of this object.

    It has no effect outside the main thread, where signals cannot be handled. Signals that are ignored, or
    that another part of the program handles, are left alone.

    Args:
        errors: what each signal raises.
    """

    def __init__(self, errors: Mapping[signal.Signals, Callable[[], BaseException]]) -> None:
        self._errors = dict(errors)
        self._received: signal.Signals | None = None
        self._raised: BaseException | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._report = sys.unraisablehook

    def __enter__(self) -> RaisedSignals:
        if threading.current_thread() is threading.main_thread():
            for number in self._errors:
                before = signal.getsignal(number)
                if before in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = before
                    signal.signal(number, self._note)
        if self._before:
            self._report, sys.unraisablehook = sys.unraisablehook, self._report_others
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            sys.unraisablehook = self._report
        while self._before:
            number, before = self._before.popitem()
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is None:
            self._received = signal.Signals(number)
        self.check()

    def check(self) -> None:
        """Raise the exception of the first signal that has arrived, if any, even if it was raised before."""
        if self._received is not None:
            self._raised = self._errors[self._received]()
            raise self._raised

    def _report_others(self, lost: sys.UnraisableHookArgs) -> None:
        if self._raised is None or lost.exc_value is not self._raised:
            self._report(lost)
