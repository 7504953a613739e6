"""Description of the measuring machine, and resource usage of processes, from Linux's accounting."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "numba", "gymnasium", "cloudpickle", "mujoco", "torch")


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use, not all that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def describe_machine() -> dict[str, Any]:
    """Return what figures depend on; nothing that tells whose machine it is."""
    return {
        "cpu": _cpu_model(),
        "cores": len(usable_cores()),
        "memory_bytes": _memory(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": {name: _version(name) for name in LIBRARIES},
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


# ---------------------------------------------------------------------- processes


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU time that a process has used.

    Raises:
        ProcessLookupError: if it has ended.
    """
    # The clock that clock_getcpuclockid(3) names, which Python does not offer. It counts nanoseconds of all
    # threads; /proc counts hundredths of a second, and so none at all of a short turn on a busy machine.
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        raise ProcessLookupError(f"process {pid} has ended") from None


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process that it does not share, 0 if it has ended."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> dict[int, str]:
    """Return the titles of all processes that a process started, by their numbers, itself among them."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int(_stat(int(folder.name))[1])
            except ProcessLookupError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: _title(one) for one in found}


def _title(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int) -> list[str]:
    """Return what follows the name, which may have spaces: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
