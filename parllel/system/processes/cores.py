"""Count the cores that this process may use, which are often fewer than the machine has.

    affinity mask                  set by taskset or a job scheduler ------>  affinity_cores
    cpu.max or cpu.cfs_quota_us    set by the runtime of a container ------->  cgroup_quotas

Both hold for this process and its workers together.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from parllel.system.limits import CGROUPS, OWN_CGROUP, cgroup_folders


def usable_cores() -> int:
    """Return how many processes may be busy at once: at least 1, at most the affinity mask and the quota.

    A quota of 2.5 cores counts as 2, since a third busy process would be stopped half of the time.
    """
    # `os.cpu_count` ignores both limits: workers for all cores of the machine would take turns.
    counts = [affinity_cores(), *(int(quota) for quota in cgroup_quotas())]
    return max(1, min(counts))


def affinity_cores() -> int:
    """Return how many cores the affinity mask allows; all cores on systems without such a mask."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quotas(root: Path = CGROUPS, process: Path = OWN_CGROUP) -> list[float]:
    """Return the processor quotas of this process's control group and those above it, in cores.

    Reads `cpu.max` of version 2 and `cpu.cfs_quota_us` of version 1, below `root` and `root/cpu`.
    """
    quotas = []
    for folder in cgroup_folders("cpu", root, process):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))  # "max" is no number
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / "cpu.cfs_quota_us").read_text())
            if limit > 0:
                quotas.append(limit / int((folder / "cpu.cfs_period_us").read_text()))
    return quotas
