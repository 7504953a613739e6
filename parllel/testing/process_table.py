"""The processes of this machine as /proc shows them.

Everything here finds nothing where there is no /proc.
"""

from __future__ import annotations

import os
from contextlib import suppress
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
    table = [process_entry(int(name)) for name in os.listdir(PROC) if name.isdigit()]
    by_parent: dict[int, list[ProcessEntry]] = {}
    for entry in table:
        if entry is not None:
            by_parent.setdefault(entry.parent, []).append(entry)
    found: list[ProcessEntry] = []
    parents = [pid]
    while parents:
        below = by_parent.pop(parents.pop(), [])
        found += below
        parents += [entry.pid for entry in below]
    return found


def command_of(pid: int) -> str:
    """Return the command line of a process, shortened, or what there is instead."""
    with suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        line = " ".join(words).strip()
        if line:
            return line if len(line) <= 200 else f"{line[:200]}..."
        return f"[{(PROC / str(pid) / 'comm').read_text().strip()}]"
    return "?"
