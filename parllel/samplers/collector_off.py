"""Batches without pauses by the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the garbage collector from running, if it is on; it makes up for it afterwards."""
    if not gc.isenabled():
        yield
        return
    # It looks through whatever has been allocated, often in the middle of a row, while workers wait.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
