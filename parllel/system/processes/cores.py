"""Cores that this process may use, often fewer than the machine has.

    affinity mask                  set by taskset or a job scheduler ------>  affinity_cores
    cpu.max or cpu.cfs_quota_us    set by the runtime of a container ------->  cgroup_quotas

Both limits apply to this process and its workers together. `available_cores` also leaves out the
cores that other programs keep busy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from pathlib import Path

from parllel.system.limits import CGROUPS, OWN_CGROUP, cgroup_folders

MOSTLY = 2 / 3  # share of a core below which a process holds up those that wait for it


def usable_cores() -> int:
    """Return the number of processes that can be busy at once, by affinity mask and quota; at least 1.

    A quota of 2.5 cores counts as 2, since a third busy process would be stopped half the time.
    """
    # `os.cpu_count` ignores both limits, so that workers for all its cores would have to take turns.
    counts = [affinity_cores(), *(int(quota) for quota in cgroup_quotas())]
    return max(1, min(counts))


def affinity_cores() -> int:
    """Return the number of cores in the affinity mask, or all cores on systems without one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quotas(root: Path = CGROUPS, process: Path = OWN_CGROUP) -> list[float]:
    """Return the processor quotas of this process's control group and its ancestors, in cores.

    Reads `cpu.max` (version 2) and `cpu.cfs_quota_us` (version 1), below `root` and `root/cpu`.
    """
    quotas = []
    for folder in cgroup_folders("cpu", root, process):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))  # ValueError for "max"
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / "cpu.cfs_quota_us").read_text())
            if limit > 0:
                quotas.append(limit / int((folder / "cpu.cfs_period_us").read_text()))
    return quotas


def available_cores(n: int) -> int:
    """Return how many of `n` processes could be busy all the time from now on; at least 1.

    Measures for a moment which of the usable cores other programs leave free, where that is possible.
    """
    usable = usable_cores()
    if min(n, usable) < 2:
        return 1
    # A quota is not tied to cores, and measuring on all of them would use it up.
    if usable == affinity_cores() and hasattr(os, "sched_setaffinity"):
        usable = max(1, free_cores())
    return min(n, usable)


def free_cores(seconds: float = 0.03) -> int:
    """Measure how many cores of the affinity mask other programs leave for two thirds of the time or more."""
    cores = sorted(os.sched_getaffinity(0))
    shares = [0.0] * len(cores)

    def compute(i: int) -> None:
        # Each thread on its own core, as the system may leave two on one core for a tenth of a second.
        os.sched_setaffinity(0, [cores[i]])
        block = bytes(1 << 18)
        began, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            hashlib.sha256(block).digest()  # without the interpreter's lock
        shares[i] = (time.thread_time() - cpu) / (time.perf_counter() - began)

    threads = [threading.Thread(target=compute, args=(i,), daemon=True) for i in range(len(cores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(share >= MOSTLY for share in shares)
