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

    Measures for a moment what other programs leave of the usable cores.
    """
    n = min(n, usable_cores())
    # Rounded down from two thirds: a process that is stopped for longer holds up those that wait for it.
    return n if n < 2 else max(1, int(free_cores(n) + 1 / 3))


def free_cores(n: int, seconds: float = 0.03) -> float:
    """Measure how many of `n` cores this process gets while other programs run, between 0 and n."""
    # Hashing releases the interpreter's lock, so that n threads keep n cores busy without other processes.
    shares = [0.0] * n
    together = threading.Barrier(n)

    def compute(i: int) -> None:
        block = bytes(1 << 20)
        together.wait()
        began, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            hashlib.sha256(block).digest()
        shares[i] = (time.thread_time() - cpu) / (time.perf_counter() - began)

    threads = [threading.Thread(target=compute, args=(i,), daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(shares)
