"""Memory of a process."""

from __future__ import annotations

import mmap
from pathlib import Path


def own_memory(pid: int | None = None) -> int:
    """Return the bytes of resident memory that a process does not share with a file or a shared array.

    Memory that it inherited by fork counts until it ends, even while both processes share it.

    Args:
        pid: the process; None: this one.

    Raises:
        OSError: on other systems than Linux. ProcessLookupError if there is no such process.
    """
    try:
        text = Path(f"/proc/{'self' if pid is None else pid}/statm").read_text()
    except FileNotFoundError:
        if Path("/proc/self/statm").exists():
            raise ProcessLookupError(f"process {pid}: expected a running process") from None
        raise OSError("the memory of a process can be measured on Linux only") from None
    # See proc(5): size, resident, shared, in pages.
    _, resident, shared, *_ = map(int, text.split())
    return (resident - shared) * mmap.PAGESIZE
