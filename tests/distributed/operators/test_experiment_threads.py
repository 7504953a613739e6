from __future__ import annotations

import signal
import time

import pytest
from lost_exceptions import lose_exception_of

from parllel.distributed.operators.experiments.episode_gate import FreeGate
from parllel.distributed.operators.experiments.experiment_threads import play_all


class Endless:
    """A session that plays until its worker is ended."""

    name = "endless"

    def __init__(self):
        self.ended = False

    def play(self):
        while not self.ended:
            time.sleep(0.01)

    def end(self):
        self.ended = True


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_whose_exception_is_lost_stops_all(name):
    session, shown = Endless(), []

    def show():
        shown.append(None)
        if len(shown) == 1:
            lose_exception_of(getattr(signal, name))
        assert len(shown) < 20, "nobody noticed the signal"

    assert play_all([session], FreeGate(), session.end, show) == name
