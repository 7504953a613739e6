"""Descendants that nobody would end: found, ended and collected.

A process group reaches most of what an environment starts, but not what has a session or group of its own,
such as a game's server started with `start_new_session=True`. Where the parent is process 1 of a container,
nobody else collects what remains of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from multiprocessing import resource_tracker
from typing import Any

from parllel.processes.process_table import PROC, ProcessEntry, descendants, process_entry

_SET_SUBREAPER = 36  # of prctl
_MARK = "PARLLEL_WORKER"
_COLLECT_S = 1.0  # a killed process is gone in far less, unless the kernel holds it


def adopt_orphans() -> bool:
    """Let descendants of this process whose parents end become its children; Linux only.

    Returns:
        Whether it worked.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def environment_mark(name: str) -> dict[str, str]:
    """Return the variable by which `marked` finds programs that carry it, and all that these start."""
    return {_MARK: name}


def marked(name: str) -> list[ProcessEntry]:
    """Return the running programs that carry a name, if this system shows what each was started with.

    A fork that never became another program does not carry it, nor one that was given other variables.
    """
    found, wanted = [], f"{_MARK}={name}".encode()
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or it ended
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(process_entry(int(folder.name)))
    return [entry for entry in found if entry is not None and entry.runs]


def kill_all(entries: Iterable[ProcessEntry]) -> None:
    """Kill processes, unless their numbers belong to others by now."""
    for entry in entries:
        now = process_entry(entry.pid)
        if now is not None and now.identity == entry.identity and now.runs:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(entry.pid, signal.SIGKILL)


def kill_own_descendants(timeout_s: float = _COLLECT_S) -> None:
    """Kill all descendants of this process but the tracker of multiprocessing, which tidies up after it."""
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    deadline = time.monotonic() + timeout_s
    # Again and again: the children of one that was killed come to us, and it may have started more.
    while True:
        found = [e for e in descendants(os.getpid()) if e.runs and e.pid != tracker._pid]
        kill_all(found)
        if not found or time.monotonic() > deadline:
            return
        time.sleep(0.001)


def collect(group: int, killed: Collection[ProcessEntry]) -> None:
    """Collect those of a killed group, and of other killed processes, that became children of this one.

    They do where this is process 1, or adopts orphans. Elsewhere it takes two system calls.
    """
    waiting = {-group, *(entry.pid for entry in killed)}
    deadline = time.monotonic() + _COLLECT_S
    while True:
        for pid in list(waiting):
            try:
                while os.waitpid(pid, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                waiting.discard(pid)
        if not waiting or time.monotonic() > deadline:
            return
        time.sleep(0.001)
