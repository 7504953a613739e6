"""Waits for several processes at once.

    processes                                  this process
    a child: message over its pipe --------->  await_any
    any: the system reports its end -------->  await_any, ExitPoller
    any: a descriptor becomes ready -------->  WaitSet
    a program: a line of its output -------->  await_lines
    all at once: exit, or be killed <--------  end_all

A loop that waits for one process after the other would notice a death only when it reaches that process.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeAlias

from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.processes.child import Child
from parllel.system.processes.orphans import kill_marked
from parllel.system.processes.program import Program
from parllel.system.processes.watched_process import TERMINATE_S, WatchedProcess


class HasFileno(Protocol):
    """A connection, or any other object with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


Handle: TypeAlias = int | HasFileno  # an int is the sentinel of a process


class WaitSet:
    """Waits for any of several connections and processes in one system call.

    Each handle has owners, which are returned when it is ready.
    """

    def __init__(self) -> None:
        self._owners: dict[int, tuple[Any, list[Any]]] = {}  # by descriptor: handle, owners
        # One poll object for all waits, as they happen during steps. Windows has only `wait`.
        self._poller = None
        if hasattr(select, "poll") and sys.platform != "win32":
            self._poller = select.poll()

    def add(self, handle: Handle, owner: Any) -> int:
        """Add an owner to a handle; return the handle's number, for `remove`."""
        number = handle if isinstance(handle, int) else handle.fileno()
        known = self._owners.get(number)
        if known is not None and known[1]:
            known[1].append(owner)
            return number
        # The number may be known from an earlier handle.
        self._owners[number] = handle, [owner]
        if known is None and self._poller is not None:
            self._poller.register(number, select.POLLIN)
        return number

    def remove(self, number: int, owner: Any) -> None:
        """Remove an owner from a handle, which may already be closed."""
        # The handle stays registered until it is ready, as most get an owner again before that.
        self._owners[number][1].remove(owner)

    def ready(self, timeout_s: float) -> list[tuple[Any, list[Any]]]:
        """Wait for any owned handle; return the ready ones with their owners, none after the time-out."""
        while True:
            found = self._found(timeout_s)
            owned = [self._owners[number] for number in found]
            if all(owners for _, owners in owned):
                return owned
            # Handles without owners, e.g. of an ended process, would stay ready for ever.
            for number, (_, owners) in zip(found, owned, strict=True):
                if not owners:
                    self._forget(number)

    def _found(self, timeout_s: float) -> list[int]:
        if self._poller is not None:
            return [number for number, _ in self._poller.poll(timeout_s * 1000)]
        ready = wait([handle for handle, _ in self._owners.values()], timeout_s)
        return [number for number, (handle, _) in self._owners.items() if handle in ready]

    def _forget(self, number: int) -> None:
        del self._owners[number]
        if self._poller is not None:
            self._poller.unregister(number)


class ExitPoller:
    """Checks whether any of several processes has ended, in one system call.

    A waiting thread would notice an end some milliseconds sooner. But a process with threads should not fork,
    and the user's process may.
    """

    def __init__(self, processes: Sequence[WatchedProcess]) -> None:
        self._handles = WaitSet()
        for process in processes:
            # Owned for as long as this object exists, so an end stays visible in every later call.
            self._handles.add(process.sentinel, process)

    def any(self) -> bool:
        """Return whether any process has ended, by itself or by `end`. Does not wait."""
        return bool(self._handles.ready(0.0))


def await_any(children: Sequence[Child], timeout_s: float) -> tuple[list[Child], float]:
    """Wait until at least one child has sent something, or has ended.

    Returns:
        These children, none after the time-out; and the remaining time.
    """
    # Pipe and sentinel of each child, as a grandchild may hold the pipe of a child that has died.
    handles: list[Connection | int] = [child.connection for child in children]
    handles += [child.sentinel for child in children]
    left_s = timeout_s
    while True:
        # Polled before the wait: a channel may have read part of a message ahead, which `wait` cannot see.
        heard = [child for child in children if child.poll()]
        if heard or left_s <= 0:
            return heard, left_s
        slice_s, began = min(left_s, SLICE_S), time.monotonic()
        wait(handles, slice_s)
        left_s -= counted_s(began, slice_s)


def await_lines(programs: Sequence[Program], timeout_s: float) -> list[Program]:
    """Wait until at least one program has a complete line, or has ended its output.

    Returns:
        These programs, none after the time-out.
    """
    left_s = timeout_s
    while True:
        heard = [program for program in programs if program.output.has_line]
        if heard or left_s < 0 or not programs:
            return heard
        slice_s, began = min(left_s, SLICE_S), time.monotonic()
        for program in _with_output(programs, slice_s):
            program.output.read_ahead()
        # Becomes negative only after a last poll.
        left_s -= max(counted_s(began, slice_s), 1e-6)


def _with_output(programs: Sequence[Program], timeout_s: float) -> Iterable[Program]:
    if sys.platform == "win32":
        time.sleep(min(timeout_s, 0.001))  # Windows pipes cannot be waited for
        return programs
    poller, by_fd = select.poll(), {}
    for program in programs:
        # Output and death of each, as another process may hold the output of one that has ended.
        for fd in (program.output.fileno(), program.output.death):
            if fd >= 0:
                by_fd[fd] = program
                poller.register(fd, select.POLLIN)
    return {by_fd[fd] for fd, _ in poller.poll(timeout_s * 1000)}


def end_all(processes: Sequence[WatchedProcess], grace_s: float) -> None:
    """Give all processes together `grace_s` to exit, then terminate them, then kill them."""
    # Each stage for all at once, so that the time-outs of hanging processes do not add up.
    ending: list[WatchedProcess] = []
    with ExitStack() as stack:
        # Run in reverse order, even after Ctrl-C.
        stack.callback(_finish_all, ending)
        stack.callback(_kill_all, processes, ending)
        if grace_s > 0:
            for process in processes:
                process.begin_exit()
            left = _await_deaths(processes, grace_s)
            for process in left:
                process.terminate()
            _await_deaths(left, TERMINATE_S)


def _kill_all(processes: Sequence[WatchedProcess], ending: list[WatchedProcess]) -> None:
    for process in processes:
        # Skips those that another thread is ending.
        if process._begin_end():
            ending.append(process)
            process._kill_all()


def _finish_all(ending: Sequence[WatchedProcess]) -> None:
    programs = [process for process in ending if isinstance(process, Program)]
    with ExitStack() as stack:
        # Runs for all of them, even if one, or the search, fails.
        for process in ending:
            stack.callback(process._finish_end)
        if programs:
            # One search for all, as it reads all processes of the machine.
            swept = kill_marked([program._mark for program in programs])
            for program in programs:
                program._swept = swept


def _await_deaths(processes: Sequence[WatchedProcess], timeout_s: float) -> list[WatchedProcess]:
    """Wait until all have ended; return those still running after the time-out."""
    left = [process for process in processes if not process.died()]
    # Not in counted slices: a pause of the machine may cut the grace period short,
    # but cannot extend it.
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        wait([process.sentinel for process in left], max(deadline - time.monotonic(), 0.0))
        left = [process for process in left if not process.died()]
    return left
