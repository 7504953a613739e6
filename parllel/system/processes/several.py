"""Wait for several processes at once.

    processes                                  this process
    a child: message over its pipe --------->  await_any
    any: the system reports its end -------->  await_any, Deaths
    any: a descriptor becomes ready -------->  Handles
    a program: a line of its output -------->  await_lines
    all at once: exit, or be killed <--------  end_all

A loop over the processes that waits for each would notice a death only when it came to that process.
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
    """A connection, or what else stands for a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


Handle: TypeAlias = int | HasFileno  # a number is the sentinel of a process


class WaitSet:
    """Wait for any of several connections and processes, in one system call.

    Each has owners, who are returned when it is ready.
    """

    def __init__(self) -> None:
        self._owners: dict[int, tuple[Any, list[Any]]] = {}  # by descriptor: handle, owners
        # One poll object for all waits, as they are made during steps. Windows has only `wait`.
        self._poller = None
        if hasattr(select, "poll") and sys.platform != "win32":
            self._poller = select.poll()

    def add(self, handle: Handle, owner: Any) -> int:
        """Wait for a handle as well, which may have other owners; return the number to remove it by."""
        number = handle if isinstance(handle, int) else handle.fileno()
        known = self._owners.get(number)
        if known is not None and known[1]:
            known[1].append(owner)
            return number
        # It may be known from what had this number before.
        self._owners[number] = handle, [owner]
        if known is None and self._poller is not None:
            self._poller.register(number, select.POLLIN)
        return number

    def remove(self, number: int, owner: Any) -> None:
        """Take an owner from a handle, which is not returned without any; it may have been closed."""
        # It stays registered until it is ready: most have an owner again before that.
        self._owners[number][1].remove(owner)

    def ready(self, timeout_s: float) -> list[tuple[Any, list[Any]]]:
        """Return those that are ready with their owners, once any is; none when the time is over."""
        while True:
            found = self._found(timeout_s)
            owned = [self._owners[number] for number in found]
            if all(owners for _, owners in owned):
                return owned
            # Of a process that has ended, or closed since: it would be ready for ever.
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
    """Check whether any of several processes has ended, in one system call.

    A thread that waits for the processes would notice an end some milliseconds sooner. But a process with
    threads should not fork, and this is the user's process, which may.
    """

    def __init__(self, processes: Sequence[WatchedProcess]) -> None:
        self._handles = WaitSet()
        for process in processes:
            self._handles.add(process.sentinel, process)

    def any(self) -> bool:
        """Return at once whether a process has ended, by itself or by `end`."""
        return bool(self._handles.ready(0.0))


def await_any(children: Sequence[Child], timeout_s: float) -> tuple[list[Child], float]:
    """Wait until at least one child has sent something, or has ended.

    Returns:
        These children, none if the time is up; and what is left of the time.
    """
    # Both for each child: a grandchild may hold the pipe of a child that has died.
    handles: list[Connection | int] = [child.connection for child in children]
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


def await_lines(programs: Sequence[Program], timeout_s: float) -> list[Program]:
    """Wait until of at least one program a line can be read at once, or its end.

    Returns:
        These programs, none if the time is up.
    """
    left_s = timeout_s
    while True:
        heard = [program for program in programs if program.output.has_line]
        if heard or left_s < 0 or not programs:
            return heard
        slice_s, began = min(left_s, SLICE_S), time.monotonic()
        for program in _with_output(programs, slice_s):
            program.output.read_ahead()
        # Below 0 after a last look.
        left_s -= max(counted_s(began, slice_s), 1e-6)


def _with_output(programs: Sequence[Program], timeout_s: float) -> Iterable[Program]:
    if sys.platform == "win32":
        time.sleep(min(timeout_s, 0.001))  # its pipes cannot be waited for
        return programs
    poller, by_fd = select.poll(), {}
    for program in programs:
        # Both of each: another process may hold the output of one that has ended.
        for fd in (program.output.fileno(), program.output.death):
            if fd >= 0:
                by_fd[fd] = program
                poller.register(fd, select.POLLIN)
    return {by_fd[fd] for fd, _ in poller.poll(timeout_s * 1000)}


def end_all(processes: Sequence[WatchedProcess], grace_s: float) -> None:
    """Give all processes together `grace_s` to exit by themselves, then terminate them, then kill them."""
    # Each stage for all at once: many processes that hang would take that many times as long.
    ending: list[WatchedProcess] = []
    with ExitStack() as stack:
        # In reverse order, after a Ctrl-C too.
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
        # Not those that another thread ends.
        if process._begin_end():
            ending.append(process)
            process._kill_all()


def _finish_all(ending: Sequence[WatchedProcess]) -> None:
    programs = [process for process in ending if isinstance(process, Program)]
    with ExitStack() as stack:
        # All of them, whatever goes wrong with one, or with the search.
        for process in ending:
            stack.callback(process._finish_end)
        if programs:
            # One for all of them, as it goes through all processes of the machine.
            swept = kill_marked([program._mark for program in programs])
            for program in programs:
                program._swept = swept


def _await_deaths(processes: Sequence[WatchedProcess], timeout_s: float) -> list[WatchedProcess]:
    """Wait until all have ended; return those that run on when the time is over."""
    left = [process for process in processes if not process.died()]
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        wait([process.sentinel for process in left], max(deadline - time.monotonic(), 0.0))
        left = [process for process in left if not process.died()]
    return left
