"""Snapshot of this process's resources: child processes, threads, file descriptors, /dev/shm segments.

    kernel         writes /proc/<pid>/{stat,maps,fd}, anew at each read; /dev/shm
    this process   reads them; what is found may be gone a moment later

Linux has all four; a system without /proc has threads alone.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from parllel.system.processes import liveness
from parllel.system.processes.fork_server import forkserver_descriptors, forkserver_pid
from parllel.system.processes.process_table import ProcessEntry, command_of, descendants

DESCRIPTORS = Path("/proc/self/fd")
SEGMENTS = Path("/dev/shm")
# Libraries open these when first used, and never close them.
KEPT_TARGETS = ("/dev/urandom", "/dev/random", "/dev/nvidia")


class LeakError(AssertionError):
    """Resources were leaked; the message lists them."""


@dataclass(frozen=True)
class Holdings:
    """Snapshot of this process's resources.

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
        """Return a snapshot."""
        return cls(working_processes(), _threads(), _descriptors(), _segments())

    def __bool__(self) -> bool:
        """Whether the snapshot is not empty."""
        return any(vars(self).values())

    def without(self, other: Holdings) -> Holdings:
        """Return the difference to `other`."""
        # By identity, which includes the time of its start: ids are used again.
        known = {entry.identity for entry in other.processes}
        return Holdings(
            frozenset(entry for entry in self.processes if entry.identity not in known),
            self.threads - other.threads,
            self.descriptors - other.descriptors,
            self.segments - other.segments,
        )

    def without_foreign_segments(self, ours: Collection[ProcessEntry]) -> Holdings:
        """Return this without segments that are gone, or that others than this process and `ours` map."""
        if not self.segments:  # to ask reads the maps of all processes
            return self
        family = {os.getpid(), *(entry.pid for entry in ours)}
        foreign = mapped_segments(self.segments, lambda pid: pid not in family)
        kept = {name for name in self.segments - foreign if (SEGMENTS / name).exists()}
        return Holdings(self.processes, self.threads, self.descriptors, frozenset(kept))

    def describe(self) -> str:
        """Return an indented line per resource."""
        lines = [
            f"process {entry.pid} (state {entry.state}): {command_of(entry.pid)}"
            for entry in sorted(self.processes)
        ]
        for thread in sorted(self.threads, key=lambda thread: thread.name):
            lines.append(f"{'daemon ' if thread.daemon else ''}thread {thread.name!r}")
        for target, count in sorted(self.descriptors.items()):
            lines.append(f"file descriptor to {target}{f', {count} times' if count > 1 else ''}")
        lines += [f"segment {SEGMENTS / name}" for name in sorted(self.segments)]
        return "\n".join(f"  {line}" for line in lines)

    def remove(self) -> None:
        """Kill processes and remove segments. Descriptors stay, because their numbers may be in use again."""
        for entry in self.processes:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(entry.pid, signal.SIGKILL)
        for name in self.segments:
            with suppress(FileNotFoundError, IsADirectoryError):
                (SEGMENTS / name).unlink()
        deadline = time.monotonic() + 1.0
        killed = {entry.pid for entry in self.processes}
        while killed & {entry.pid for entry in working_processes()} and time.monotonic() < deadline:
            time.sleep(0.005)


def settle(left: Callable[[], Holdings], grace_s: float) -> Holdings:
    """Poll `left` until it is empty or `grace_s` has passed, and return its last result."""
    found = left()
    if not found:
        return found
    deadline = time.monotonic() + grace_s
    pause_s, collected_at = 0.001, time.monotonic()
    # Not before the first check, as a collection takes far longer; then now and then, since a thread or
    # process that ends may leave another reference cycle.
    gc.collect()
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)
        if time.monotonic() - collected_at > grace_s / 4:
            gc.collect()
            collected_at = time.monotonic()
    return found


def collect_children(wanted: Callable[[tuple[int, int]], bool]) -> None:
    """Collect ended children, orphans among them, so that no zombie stays.

    wanted: is given an identity; false for those whose exit status others will ask for.
    """
    multiprocessing.active_children()  # those that it started, for their exit codes
    if not hasattr(os, "waitid"):
        return
    with suppress(ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    for entry in descendants(os.getpid()):
        if entry.parent == os.getpid() and not entry.runs and wanted(entry.identity):
            with suppress(ChildProcessError):
                os.waitpid(entry.pid, os.WNOHANG)


def working_processes() -> frozenset[ProcessEntry]:
    """Return the running descendants of this process, but for servers of multiprocessing that stay."""
    allowed = {forkserver_pid(), *(owner[0] for owner in _of_multiprocessing())}
    return frozenset(
        entry for entry in descendants(os.getpid()) if entry.runs and entry.pid not in allowed
    )


def mapped_segments(names: Collection[str], by: Callable[[int], bool]) -> set[str]:
    """Return which of the segments are mapped by processes whose ids `by` accepts."""
    # By device and inode: a semaphore is mapped under a name that it had before it was complete.
    places: dict[tuple[str, str], str] = {}
    for name in names:
        with suppress(OSError):
            status = (SEGMENTS / name).stat()
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            places[device, str(status.st_ino)] = name
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps") if places else ():
        if by(int(maps.parent.name)):
            with suppress(OSError):
                for line in maps.read_text(errors="replace").splitlines():
                    place = tuple(line.split(None, 5)[3:5])
                    if place in places:
                        found.add(places[place])
    return found


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
