from __future__ import annotations

import os
import signal
import threading

import pytest
from lost_exceptions import lose_exception_of

from parllel.runners.stop_signals import StopSignals, stop_named


@pytest.fixture
def handlers():
    """Put handlers back that a test has changed."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_is_noted(handlers):
    said = []
    with StopSignals(said.append) as signals:
        assert signals.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == "SIGTERM"
    assert said == ["SIGTERM"]
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_the_second_one_does_what_it_would_have_done(handlers):
    caught = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    with StopSignals(lambda name: None):
        os.kill(os.getpid(), signal.SIGINT)
        assert caught == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert caught == [signal.SIGTERM]
        # From now on all is as it was.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_an_ignored_signal_stays_ignored(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignals(lambda name: None) as signals:
        os.kill(os.getpid(), signal.SIGINT)
    assert signals.received is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_in_another_thread_nothing_changes(handlers):
    found = []

    def enter():
        with StopSignals(lambda name: None):
            found.append({number: signal.getsignal(number) for number in handlers})

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(10)
    assert found == [handlers]


def test_sigterm_ends_a_build_with_one_line(handlers, capfd):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit, match="143"), stop_named("the run was being built"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == "SIGTERM while the run was being built\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_of_the_user_stays_during_a_build(handlers):
    caught = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    with stop_named("the run was being built"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught == [signal.SIGTERM]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_build_that_loses_the_exception_of_sigterm_is_not_a_run(handlers):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit, match="143"), stop_named("the run was being built"):
        lose_exception_of(signal.SIGTERM)
