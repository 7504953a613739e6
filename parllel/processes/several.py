"""Several children at once."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

from parllel.counted_time import SLICE_S, counted_s
from parllel.processes.child import Child
from parllel.processes.watched_process import WatchedProcess


class Deaths:
    """Looks whether any of several processes has ended, at the cost of one system call.

    A thread that sleeps until one does would notice it earlier by some milliseconds. But a process that has
    threads should not fork, and this is the process whose user may want to.
    """

    def __init__(self, processes: Sequence[WatchedProcess]) -> None:
        self._sentinels = [process.sentinel for process in processes]
        self._poller = None
        if hasattr(select, "poll") and sys.platform != "win32":
            self._poller = select.poll()
            for sentinel in self._sentinels:
                self._poller.register(sentinel, select.POLLIN)

    def any(self) -> bool:
        """Return at once whether one has ended, by itself or by `end`."""
        if self._poller is None:
            return bool(wait(self._sentinels, 0))
        return bool(self._poller.poll(0))


def await_any(children: Sequence[Child], timeout_s: float) -> tuple[list[Child], float]:
    """Wait until some children have sent something, or have ended.

    Returns these, none if the time is over, and what is left of it.
    """
    handles: list[Connection | int] = [child.connection for child in children]
    handles += [child.sentinel for child in children]
    left_s = timeout_s
    while True:
        heard = [child for child in children if child.poll()]
        if heard or left_s <= 0:
            return heard, left_s
        slice_s, began = min(left_s, SLICE_S), time.monotonic()
        wait(handles, slice_s)
        left_s -= counted_s(began, slice_s)


def end_all(processes: Sequence[WatchedProcess], grace_s: float) -> None:
    """Give all processes the same `grace_s` to leave by themselves, then end those that have not."""
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.end(max(deadline - time.monotonic(), 0.0))
