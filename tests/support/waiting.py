from __future__ import annotations

import time
from collections.abc import Callable

LONG_S = 30.0  # for what takes a moment on an idle machine


def until(condition: Callable[[], object]) -> None:
    """Return once something is true."""
    limit = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < limit, "it did not come true"
        time.sleep(0.005)
