"""Another thread that starts processes all the time, as far as others notice it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from parllel.system.processes import launch


@contextmanager
def other_starts() -> Iterator[None]:
    """Let a thread set and unset what a start sets for its time: variables of this process."""
    ended, interval = threading.Event(), sys.getswitchinterval()

    def start() -> None:
        while not ended.is_set():
            with launch._lock, launch._environment(launch.ONE_THREAD):
                pass

    thread = threading.Thread(target=start)
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
