"""What tests of children share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from parllel.system.processes import Program
from parllel.system.processes.child import Child

LONG_S = 30.0
Start = Callable[..., Child]
Run = Callable[..., Program]


def ready(child: Child) -> Child:
    assert child.receive(LONG_S, "at start") == b"ready"
    return child


@contextmanager
def ending(child: Child) -> Iterator[Child]:
    """End a child after a block."""
    try:
        yield child
    finally:
        child.end()
