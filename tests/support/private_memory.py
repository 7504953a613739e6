"""How much memory a process holds for itself alone."""

from __future__ import annotations

import os
from pathlib import Path


def private_memory(pid: int | None = None) -> int:
    """Return the bytes that a process has written to and shares with no other; of this one by default.

    For tests of growth. What psutil calls `rss` and `uss` includes files that are mapped, such as libraries,
    and `uss` grows by them when another process that had them mapped too ends.

    Raises:
        OSError: if there is no such process, or no /proc.
    """
    lines = Path(f"/proc/{os.getpid() if pid is None else pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["RssAnon"].removesuffix("kB")) * 1024
