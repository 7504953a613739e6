"""Wait for several processes at once.

    processes                                  this process
    a child: message over its pipe --------->  await_any
    any: the system reports its end -------->  await_any, Deaths
    any: a descriptor becomes ready -------->  Handles
    all at once: exit, or be killed <--------  end_all

A loop over the processes that waits for each would notice a death only when it came to that process.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import TypeAlias

from parllel.counted_time import SLICE_S, counted_s
from parllel.processes.child import Child
from parllel.processes.watched_process import WatchedProcess

# What a process can wait for: a connection, or the descriptor or handle of a process.
Handle: TypeAlias = Connection | int


class Handles:
    """Wait for any of several connections and descriptors, in one system call.

    Each may be given several times.
    """

    def __init__(self, handles: Sequence[Handle]) -> None:
        self._handles = handles
        # One poll object for all waits, as they are made during steps. Windows has only `wait`.
        self._poller = None
        if hasattr(select, "poll") and sys.platform != "win32":
            self._poller = select.poll()
            self._positions: dict[int, list[int]] = {}
            for position, handle in enumerate(handles):
                descriptor = handle if isinstance(handle, int) else handle.fileno()
                self._positions.setdefault(descriptor, []).append(position)
                self._poller.register(descriptor, select.POLLIN)

    def ready(self, timeout_s: float) -> list[int]:
        """Return the positions of those that are ready, once any is; none when the time is over."""
        if self._poller is None:
            found = wait(self._handles, timeout_s)
            return [i for i, handle in enumerate(self._handles) if handle in found]
        ready = self._poller.poll(timeout_s * 1000)
        return [i for descriptor, _ in ready for i in self._positions[descriptor]]


class Deaths:
    """Check whether any of several processes has ended, in one system call.

    A thread that waits for the processes would notice an end some milliseconds sooner. But a process with
    threads should not fork, and this is the user's process, which may.
    """

    def __init__(self, processes: Sequence[WatchedProcess]) -> None:
        self._handles = Handles([process.sentinel for process in processes])

    def any(self) -> bool:
        """Return at once whether a process has ended, by itself or by `end`."""
        return bool(self._handles.ready(0.0))


def await_any(children: Sequence[Child], timeout_s: float) -> tuple[list[Child], float]:
    """Wait until at least one child has sent something, or has ended.

    Returns:
        These children, none if the time is up; and what is left of the time.
    """
    # Both for each child: a grandchild may hold the pipe of a child that has died.
    handles: list[Handle] = [child.connection for child in children]
    handles += [child.sentinel for child in children]
    left_s = timeout_s
    while True:
        # Asked before the wait, as a channel may have read part of a message ahead, which `wait` cannot see.
        heard = [child for child in children if child.poll()]
        if heard or left_s <= 0:
            return heard, left_s
        slice_s, began = min(left_s, SLICE_S), time.monotonic()
        wait(handles, slice_s)
        left_s -= counted_s(began, slice_s)


def end_all(processes: Sequence[WatchedProcess], grace_s: float) -> None:
    """Give all processes together `grace_s` to exit by themselves, then end those that have not."""
    # One deadline: with a grace for each, many processes that hang would take that many times as long.
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.end(max(deadline - time.monotonic(), 0.0))
