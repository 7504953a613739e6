"""How many cores this process may use, which is often fewer than the machine has."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return how many cores there are to use: at least 1, at most the affinity mask and the quota.

    A quota of 2.5 cores counts as 2, since a third busy process would be stopped half of the time.
    """
    counts = [affinity_cores(), *(int(quota) for quota in cgroup_quotas())]
    return max(1, min(counts))


def affinity_cores() -> int:
    """Return how many cores the affinity mask allows; all there are where there is no such mask."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quotas(root: Path = _CGROUPS, process: Path = Path("/proc/self/cgroup")) -> list[float]:
    """Return the processor quotas of the control groups above this process, in cores.

    Version 2 (`cpu.max`) at each level, and version 1 (`cpu.cfs_quota_us`) at the root and the group itself.
    """
    groups: list[str] = []
    with contextlib.suppress(OSError):
        groups = [line.split(":", 2)[-1].lstrip("/") for line in process.read_text().splitlines()]
    folders = {root, root / "cpu"}
    for group in groups:
        for base in (root, root / "cpu"):
            folder = base / group
            while folder not in (base, base.parent):
                folders.add(folder)
                folder = folder.parent
    quotas = []
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))  # "max" is no number
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / "cpu.cfs_quota_us").read_text())
            if limit > 0:
                quotas.append(limit / int((folder / "cpu.cfs_period_us").read_text()))
    return quotas
