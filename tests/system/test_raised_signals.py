from __future__ import annotations

import os
import signal
import sys
import threading

import pytest
from lost_exceptions import lose_exception_of

from parllel.system.raised_signals import RaisedSignals

ERRORS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: lambda: SystemExit(143)}


@pytest.fixture(autouse=True)
def handlers():
    """Check that the handlers are the same afterwards."""
    before = {number: signal.getsignal(number) for number in ERRORS}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield before
    assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    signal.signal(signal.SIGTERM, before[signal.SIGTERM])


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_raises(number, error):
    with RaisedSignals(ERRORS) as signals:
        signals.check()
        with pytest.raises(error):
            os.kill(os.getpid(), number)


def test_an_exception_that_was_lost_is_raised_by_the_next_check(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: reported.append(repr(lost.exc_value)))
    with RaisedSignals(ERRORS) as signals:
        lose_exception_of(signal.SIGTERM)
        for _ in range(2):
            with pytest.raises(SystemExit, match="143"):
                signals.check()
        lose_error_in_callback()
    assert reported == ["ValueError('of others')"]
    lose_error_in_callback()
    assert len(reported) == 2


def lose_error_in_callback():
    class Thing:
        def __del__(self):
            raise ValueError("of others")

    Thing()


@pytest.mark.parametrize("kept", [signal.SIG_IGN, lambda number, frame: None])
def test_the_handlers_of_others_stay(kept):
    signal.signal(signal.SIGTERM, kept)
    with RaisedSignals(ERRORS) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        signals.check()
    assert signal.getsignal(signal.SIGTERM) is kept
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_in_another_thread_nothing_changes():
    found = []

    def enter():
        with RaisedSignals(ERRORS):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(10)
    assert found == [signal.SIG_DFL]
