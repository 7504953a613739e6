"""Fail a test that leaves a process, thread, file descriptor or shared memory segment behind.

Linux has all four checks; a system without /proc has the one for threads.

As a pytest fixture for every test of a suite:

    @pytest.fixture(autouse=True)
    def no_leaks():
        with LeakGuard():
            yield
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any

from parllel.processes import (
    ProcessEntry,
    command_of,
    descendants,
    forkserver_descriptors,
    forkserver_pid,
    liveness,
)

DESCRIPTORS = Path("/proc/self/fd")
SEGMENTS = Path("/dev/shm")
# Libraries open these when first used, and never close them.
KEPT_TARGETS = ("/dev/urandom", "/dev/random", "/dev/nvidia")
_GET_SUBREAPER, _SET_SUBREAPER = 37, 36  # of prctl


class LeakError(AssertionError):
    """Something was left behind; the message lists it."""


@dataclass(frozen=True)
class Holdings:
    """What this process holds at one moment.

    Attributes:
        processes: running descendants.
        threads: Python's threads, daemons too.
        descriptors: what the open file descriptors lead to, with numbers.
        segments: names in /dev/shm that belong to this user.
    """

    processes: frozenset[ProcessEntry]
    threads: frozenset[threading.Thread]
    descriptors: Counter[str]
    segments: frozenset[str]

    @classmethod
    def now(cls) -> Holdings:
        """Return what this process holds now."""
        return cls(working_processes(), _threads(), _descriptors(), _segments())


class LeakGuard:
    """Compare what this process holds before and after; allow `grace_s` for things to go.

    The processes of multiprocessing itself (resource tracker, fork servers) and their descriptors may
    stay, and so may the pipe that tells children that their parent lives. While the guard is
    in force, descendants whose parent ended become children of this process, so that none escapes.

    Raises:
        LeakError: on leaving, if something is left, unless another exception is on its way. Left
            processes are killed and left segments removed in any case.
    """

    def __init__(self, grace_s: float = 2.0) -> None:
        self.grace_s = grace_s

    def __enter__(self) -> LeakGuard:
        self._adopted_before = _adopt_orphans(True)
        self._before = Holdings.now()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            left = self._wait()
            # Before they are removed: the command line of a process is gone with it.
            report = _describe(left) if left is not None else ""
            if left is not None:
                # Whatever the test's outcome: one leak must fail one test, and not all that follow.
                _remove(left)
            _collect_children(self._before.processes)
        finally:
            _adopt_orphans(self._adopted_before)
        # A leak after a failure is a consequence, and would hide the failure.
        if report and error is None:
            raise LeakError(f"left behind:\n{report}")

    def _wait(self) -> Holdings | None:
        """Return what is still left after `grace_s`, or None."""
        left = self._left()
        if left is None:
            return None
        deadline = time.monotonic() + self.grace_s
        pause_s = 0.001
        # Not before the first check, as a collection takes far longer; then repeatedly, since a thread or
        # process that ends may leave another reference cycle.
        gc.collect()
        while (left := self._left()) is not None and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
            if pause_s == 0.1:
                gc.collect()
        return left

    def _left(self) -> Holdings | None:
        now, before = Holdings.now(), self._before
        # By identity, which includes the time of its start: ids are used again.
        known = {entry.identity for entry in before.processes}
        left = Holdings(
            frozenset(entry for entry in now.processes if entry.identity not in known),
            now.threads - before.threads,
            now.descriptors - before.descriptors,
            now.segments - before.segments,
        )
        # Only then, as it reads the maps of all processes.
        if left.segments:
            foreign = _used_by_others(left.segments, now.processes)
            left = Holdings(left.processes, left.threads, left.descriptors, left.segments - foreign)
        return left if any(vars(left).values()) else None


# ---------------------------------------------------------------------- what this process holds


def working_processes() -> frozenset[ProcessEntry]:
    """Return the running descendants of this process, but for servers of multiprocessing that stay."""
    allowed = {forkserver_pid(), *(owner[0] for owner in _of_multiprocessing())}
    return frozenset(
        entry for entry in descendants(os.getpid()) if entry.runs and entry.pid not in allowed
    )


def _of_multiprocessing() -> list[tuple[int | None, int | None]]:
    """Return process ids and descriptors of servers that live as long as this process."""
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    found = [(tracker._pid, tracker._fd)]
    if sys.platform != "win32":
        from multiprocessing import forkserver

        server: Any = forkserver._forkserver  # type: ignore[attr-defined]
        found.append((server._forkserver_pid, server._forkserver_alive_fd))
    return found


def _threads() -> frozenset[threading.Thread]:
    # A thread of a native library that called Python once is listed for ever as a dummy.
    return frozenset(
        thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)
    )


def _descriptors() -> Counter[str]:
    if not DESCRIPTORS.is_dir():
        return Counter()
    kept = {str(owner[1]) for owner in _of_multiprocessing()}
    kept |= {str(fd) for fd in (*(liveness._pipe or ()), *forkserver_descriptors())}
    found: Counter[str] = Counter()
    for number in os.listdir(DESCRIPTORS):
        with suppress(FileNotFoundError):  # that of the listing itself
            target = os.readlink(DESCRIPTORS / number)
            if number not in kept and not target.startswith(KEPT_TARGETS):
                found[target] += 1
    return found


def _segments() -> frozenset[str]:
    found = set()
    if SEGMENTS.is_dir():
        for entry in os.scandir(SEGMENTS):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    found.add(entry.name)
    return frozenset(found)


def _used_by_others(names: frozenset[str], ours: frozenset[ProcessEntry]) -> set[str]:
    """Return the segments that processes which are not ours map: other programs run here too."""
    family = {os.getpid(), *(entry.pid for entry in ours)}
    # By device and inode: a semaphore is mapped under a name that it had before it was complete.
    places: dict[tuple[str, str], str] = {}
    for name in names:
        with suppress(OSError):
            status = (SEGMENTS / name).stat()
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            places[device, str(status.st_ino)] = name
    found = set(names) - set(places.values())  # gone meanwhile
    for maps in Path("/proc").glob("[0-9]*/maps"):
        if int(maps.parent.name) not in family:
            with suppress(OSError):
                for line in maps.read_text(errors="replace").splitlines():
                    place = tuple(line.split(None, 5)[3:5])
                    if place in places:
                        found.add(places[place])
    return found


# ---------------------------------------------------------------------- reporting and removing


def _describe(left: Holdings) -> str:
    lines = [
        f"process {entry.pid} (state {entry.state}): {command_of(entry.pid)}"
        for entry in sorted(left.processes)
    ]
    for thread in sorted(left.threads, key=lambda thread: thread.name):
        lines.append(f"{'daemon ' if thread.daemon else ''}thread {thread.name!r}")
    for target, count in sorted(left.descriptors.items()):
        lines.append(f"file descriptor to {target}{f', {count} times' if count > 1 else ''}")
    lines += [f"segment {SEGMENTS / name}" for name in sorted(left.segments)]
    return "\n".join(f"  {line}" for line in lines)


def _remove(left: Holdings) -> None:
    """Kill processes and remove segments; a descriptor stays, as its number may be in use again."""
    for entry in left.processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(entry.pid, signal.SIGKILL)
    for name in left.segments:
        with suppress(FileNotFoundError, IsADirectoryError):
            (SEGMENTS / name).unlink()
    deadline = time.monotonic() + 1.0
    killed = {entry.pid for entry in left.processes}
    while killed & {entry.pid for entry in working_processes()} and time.monotonic() < deadline:
        time.sleep(0.005)


def _collect_children(before: frozenset[ProcessEntry]) -> None:
    """Wait for ended children, adopted ones included, so that no zombie stays."""
    multiprocessing.active_children()  # those that it started, for their exit codes
    if not hasattr(os, "waitid"):
        return
    with suppress(ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    known = {entry.identity for entry in before}
    for entry in descendants(os.getpid()):
        if entry.parent == os.getpid() and not entry.runs and entry.identity not in known:
            with suppress(ChildProcessError):
                os.waitpid(entry.pid, os.WNOHANG)


def _adopt_orphans(wanted: bool) -> bool:
    """Set whether this process adopts orphaned descendants (Linux); return the former setting."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # Nested guards: an inner one must not end what an outer one set.
    before = ctypes.c_int(0)
    libc.prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if bool(before.value) != wanted:
        libc.prctl(_SET_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)
