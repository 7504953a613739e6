"""The processes of this machine as /proc shows them.

Everything here finds nothing where there is no /proc.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class ProcessEntry(NamedTuple):
    """One process; `started` is in clock ticks since boot."""

    pid: int
    parent: int
    state: str
    started: int

    @property
    def identity(self) -> tuple[int, int]:
        """What tells it from a later process of the same id."""
        return self.pid, self.started

    @property
    def runs(self) -> bool:
        """Whether it is more than an entry that waits to be collected by its parent."""
        return self.state not in "ZX"


def process_entry(pid: int) -> ProcessEntry | None:
    """Return the entry of a process, or None if there is none."""
    with suppress(OSError, ValueError, IndexError):
        content = (PROC / str(pid) / "stat").read_text(errors="replace")
        # The name of the program is in parentheses and may hold anything, even parentheses.
        rest = content[content.rindex(")") + 2 :].split()
        return ProcessEntry(pid, int(rest[1]), rest[0], int(rest[19]))
    return None


def process_runs(pid: int) -> bool:
    """Return whether a process lives; one that ended and was not collected yet does not."""
    entry = process_entry(pid)
    return entry is not None and entry.runs


def descendants(pid: int) -> list[ProcessEntry]:
    """Return the children of a process, their children, and so on, uncollected ones included."""
    if not PROC.is_dir():
        return []
    children = _listed_children if _lists_children() else _table_of_children().__getitem__
    found: list[ProcessEntry] = []
    parents = [pid]
    while parents:
        parent = parents.pop()
        entries = [process_entry(child) for child in children(parent)]
        # The number of one that ended meanwhile may be somebody else's already.
        below = [entry for entry in entries if entry is not None and entry.parent == parent]
        found += below
        parents += [entry.pid for entry in below]
    return found


@cache
def _lists_children() -> bool:
    """Return whether this system lists the children of a thread; that is far less to read."""
    return (PROC / "self" / "task" / str(os.getpid()) / "children").exists()


def _listed_children(pid: int) -> list[int]:
    # The system may pass one over while another one ends: what is read twice is true.
    found = _read_children(pid)
    for _ in range(10):
        before, found = found, _read_children(pid)
        if found == before:
            break
    return found


def _read_children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(PROC / str(pid) / "task"):
            with suppress(OSError), open(f"{PROC}/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _table_of_children() -> defaultdict[int, list[int]]:
    """Return the children of all processes."""
    table: defaultdict[int, list[int]] = defaultdict(list)
    for name in os.listdir(PROC):
        entry = process_entry(int(name)) if name.isdigit() else None
        if entry is not None:
            table[entry.parent].append(entry.pid)
    return table


def command_of(pid: int) -> str:
    """Return the command line of a process, shortened, or what there is instead."""
    with suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        line = " ".join(words).strip()
        if line:
            return line if len(line) <= 200 else f"{line[:200]}..."
        return f"[{(PROC / str(pid) / 'comm').read_text().strip()}]"
    return "?"
