"""What tests of children share."""

from __future__ import annotations

import time
from collections.abc import Callable

from parllel.system.processes import Program
from parllel.system.processes.child import Child

METHODS = ["fork", "forkserver", "spawn"]
LONG_S = 30.0
Start = Callable[..., Child]
Run = Callable[..., Program]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)


def ready(child: Child) -> Child:
    assert child.receive(LONG_S, "at start") == b"ready"
    return child
