"""Search, kill and collection of descendants that a kill of the process group does not reach.

    child         environment_mark: a variable inherited by all programs that it starts
    parent        child alive:    descendants, by their parents in /proc   -> kill_all
                  child crashed:  marked, by their environment in /proc    -> kill_all
                  program ended:  all that still carries its mark          -> kill_marked
    fork server   adopt_orphans: becomes the parent of what killed workers leave -> kill_own_descendants

An environment may start a program in a separate session, such as a game server with
`start_new_session=True`. If this process is process 1 of a container, or adopts orphans, it must collect them
after killing them, or they stay in the process table as zombies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from multiprocessing import resource_tracker
from typing import Any

from parllel.system.processes.process_table import PROC, ProcessEntry, descendants, process_entry

_SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_MARK = "PARLLEL_WORKER"
_KERNEL_THREADS = 2  # the process that is the parent of all kernel threads
_EXEC_S = 0.5  # limit for `exec`, which takes far less
_COLLECT_S = (
    1.0  # limit for a killed process to end, which takes far less unless it waits for a device
)


def adopt_orphans() -> bool:
    """Make this process adopt descendants whose parents end; return whether it worked.

    Linux only. Elsewhere, orphans become children of process 1.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def environment_mark(name: str) -> dict[str, str]:
    """Return the variable by which `marked` finds programs, and all programs that they start."""
    return {_MARK: name}


def marked(name: str) -> list[ProcessEntry]:
    """Return the running programs that were started with a mark; none without /proc.

    Misses forks that have not executed another program, and programs started without the variable.
    """
    return _search([name])[0]


def _search(names: Iterable[str]) -> tuple[list[ProcessEntry], set[int]]:
    """Return the running programs with any of the marks, and the ids of processes that have ended."""
    wanted = {f"{_MARK}={name}".encode() for name in names}
    found, ended = [], set()
    unknown: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        unknown += [int(entry) for entry in os.listdir(PROC) if entry.isdigit()]
    deadline = time.monotonic() + _EXEC_S
    while True:
        starting = []
        for pid in unknown:
            variables = _read(pid, "environ")
            if variables and wanted.isdisjoint(variables.split(b"\0")):
                continue  # nearly all processes of the machine are dismissed by this one file
            # Entry first, then variables again: these belong to the entry's process, or to a later
            # one with the same id, which `kill_all` spares.
            entry, variables = process_entry(pid), _read(pid, "environ")
            if entry is None or not entry.runs or variables is None:
                ended.add(pid)
            elif not wanted.isdisjoint(variables.split(b"\0")):
                found.append(entry)
            elif not variables and _is_in_exec(entry):
                starting.append(pid)
        if not starting or time.monotonic() > deadline:
            return found, ended
        unknown = starting
        time.sleep(0.001)


def _is_in_exec(entry: ProcessEntry) -> bool:
    """Return whether a process without variables is in the middle of `exec`.

    It then has no arguments either. Kernel threads never have any.
    """
    return _KERNEL_THREADS not in (entry.pid, entry.parent) and not _read(entry.pid, "cmdline")


def _read(pid: int, name: str) -> bytes | None:
    """Return the content of a /proc file; b"" for another user's process, None for one that has ended."""
    try:
        with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except PermissionError:
        return b""
    except OSError:
        return None


def kill_all(entries: Iterable[ProcessEntry]) -> None:
    """Kill processes, sparing later ones with the same ids."""
    for entry in entries:
        # Checked again, as the process may have ended since, and its id may have been reused.
        now = process_entry(entry.pid)
        if now is not None and now.identity == entry.identity and now.runs:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(entry.pid, signal.SIGKILL)


def kill_marked(names: Collection[str], timeout_s: float = _COLLECT_S) -> list[ProcessEntry]:
    """Kill the programs that were started with any of the marks; return them."""
    killed: list[ProcessEntry] = []
    known: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while True:
        found, ended = _search(names)
        kill_all(found)
        killed += found
        # A process that ended between the listing and its check may have started another meanwhile, as a
        # daemon does. Only those that had ended before cannot have.
        if (not found and ended <= known) or time.monotonic() > deadline:
            return killed
        known |= ended
        time.sleep(0.001)


def kill_own_descendants(timeout_s: float = _COLLECT_S) -> None:
    """Kill and collect all descendants of this process except multiprocessing's resource tracker.

    Only for a process about to end: other code that waits for its children would miss their exit codes.
    """
    # The tracker unlinks leftover shared memory, and exits by itself after its last user.
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    deadline = time.monotonic() + timeout_s
    # Repeated until a search finds none: a process may start another between the search and its death, and
    # children of a killed one may become children of this process.
    while True:
        found = [e for e in descendants(os.getpid()) if e.runs and e.pid != tracker._pid]
        kill_all(found)
        # Process 1 of a namespace ends only after all ended processes in it are collected, some of which may
        # have become children of this process.
        with contextlib.suppress(ChildProcessError):
            while hasattr(os, "WNOHANG") and os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not found or time.monotonic() > deadline:
            return
        time.sleep(0.001)


def collect(group: int, killed: Collection[ProcessEntry]) -> None:
    """Collect killed processes that have become children of this one, so that no zombies remain.

    group: id of a killed process group.
    killed: killed processes outside the group.

    They become children of this process if it is process 1 or adopts orphans. Otherwise this returns after
    one system call for each.
    """
    waiting = {-group, *(entry.pid for entry in killed)}  # negative for waitpid: all of the group
    deadline = time.monotonic() + _COLLECT_S
    while True:
        for pid in list(waiting):
            try:
                while os.waitpid(pid, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:  # all collected, or not children of this process
                waiting.discard(pid)
        if not waiting or time.monotonic() > deadline:
            return
        time.sleep(0.001)
