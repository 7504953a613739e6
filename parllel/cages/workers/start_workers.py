"""Division of a SynchronizedProcessCage's columns among processes, and start of the workers.

    columns      0 1 2 3 | 4 5 6 7          two groups of a cage of eight environments
    stepped by   w w v m | w w v m          w, v: workers; m: the main process, if it participates

Every process has a share of every group, so that all cores are busy while any group steps. Groups, and the
shares of a group, are contiguous.

    main: start_pool                                          worker w: serve
    allocates lines, flags, slots and a pipe     -------->    inherits them; they cannot be sent later
    Child, with the factories of its columns     -------->    makes its environments, then waits for commands
    makes its own environments meanwhile
    WorkerPool.await_spaces                      <--------    first words: the spaces, or the error

A worker's error is raised by the first call that needs its environments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.kinds import SharedMemoryArray
from parllel.buffers.conversation import Conversation
from parllel.cages.env_registry import RegistryTarget
from parllel.cages.stepping.environments_for import environments_for
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.workers.control import Control, ControlSize
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.cages.workers.synchronized_worker import WorkerSettings, serve
from parllel.cages.workers.wakeup_pipe import WakeupPipe
from parllel.cages.workers.worker_pool import WorkerPool
from parllel.system.processes.child import Child
from parllel.system.processes.cores import usable_cores
from parllel.system.processes.fork_server import preload_in_forkserver
from parllel.system.waits.make_wait import available_kinds

SPIN_US = 1000.0  # longest spin; most waits last as long as the agent takes to act


@dataclass(frozen=True)
class PoolSettings:
    """Settings of the processes; see SynchronizedProcessCage.

    Attributes:
        n_workers: number of processes besides this one.
        shares: columns of each process in each group, relative to the cage's first. The main
            process is last.
        index: number of the cage's first environment.
    """

    n_workers: int
    shares: Sequence[Sequence[slice]]
    index: int
    reset_automatically: bool
    timeout_s: float
    wait: str | None
    spin_us: float | None
    start_method: str | None
    cores: Sequence[int] | None
    buffers: Any
    infos: bool = False
    restarts: bool = False


class StartedPool(NamedTuple):
    """The processes of a cage, which have started.

    Attributes:
        needs_reset, which: flags [n], in shared memory.
        start: function that starts a worker, given its number, the number of the last command that was
            finished, and the groups whose episodes were lost.
    """

    pool: WorkerPool
    needs_reset: NDArray[np.bool_]
    which: NDArray[np.bool_]
    start: Callable[[int, int, Sequence[int]], Conversation]


def divide(
    n: int, n_workers: int, n_groups: int, n_main: int
) -> tuple[list[slice], list[list[slice]]]:
    """Return the columns of each group, and each process's columns in each group.

    n: total number of environments.
    n_main: number of environments that the main process steps; 0 if it does not participate.

    The main process is last. A worker has at least one environment in total, but may have none in a
    group.

    Raises:
        ValueError: if there are too few environments for the workers or groups.
    """
    # Checked before any process starts, which would otherwise have to be ended.
    if n_workers < 1:
        raise ValueError(f"n_workers: expected at least 1, got {n_workers}")
    if not 1 <= n_groups <= n:
        raise ValueError(f"n_groups: expected 1 to {n} for {n} environments, got {n_groups}")
    if not 0 <= n_main < n:
        raise ValueError(f"n_main: expected 0 to {n - 1} of {n} environments, got {n_main}")
    if n_workers > n - n_main:
        raise ValueError(
            f"n_workers: expected at most {n - n_main}, one for each environment that workers "
            f"step, got {n_workers}"
        )
    groups = _slices_of(_split_evenly(n, n_groups))
    sizes = [group.stop - group.start for group in groups]
    # Main's share comes first, as its size is given; the workers divide the rest of each group.
    mains = _spread(n_main, sizes)
    workers = [[0] * n_groups for _ in range(n_workers)]
    for g, size in enumerate(sizes):
        # Workers with the fewest environments so far come first: `_split_evenly` gives more to the first, so
        # no worker is left without any.
        order = sorted(range(n_workers), key=lambda w: sum(workers[w]))
        for w, share in zip(order, _split_evenly(size - mains[g], n_workers), strict=True):
            workers[w][g] = share
    # Contiguous, as a process writes its columns of a row as a slice.
    shares = []
    for g, group in enumerate(groups):
        sizes_here = [worker[g] for worker in workers] + [mains[g]]
        shares.append(_slices_of(sizes_here, group.start))
    return groups, [list(of_one) for of_one in zip(*shares, strict=True)]


def environments_of(
    env_factories: Sequence[EnvFactory] | VectorEnvFactory,
    seeds: Sequence[Any],
    traj_info: TrajInfoFactory,
    reset_automatically: bool,
    index: int,
    check: str,
    infos: bool = False,
) -> Callable[[slice], Callable[[], RowEnvironments]]:
    """Return a function that, given columns of a cage, returns a function that makes their environments."""

    def make(share: slice) -> Callable[[], RowEnvironments]:
        # Only the factories of these columns, as they are pickled for the process that steps them.
        makers: Sequence[EnvFactory] | VectorEnvFactory = env_factories
        if not isinstance(env_factories, VectorEnvFactory):
            makers = env_factories[share]
        return partial(
            environments_for,
            makers,
            seeds[share],
            traj_info,
            reset_automatically=reset_automatically,
            index=index + share.start,
            check=check,
            infos=infos,
        )

    return make


def start_pool(
    make: Callable[[slice], Callable[[], RowEnvironments]], settings: PoolSettings
) -> StartedPool:
    """Start all workers, and make the environments of the main process.

    make: function returned by `environments_of`.

    A worker's error is raised by the first call that needs its environments.
    """
    shares, n_workers = settings.shares, settings.n_workers
    size = ControlSize(n_workers, len(shares[0]))
    kind, spin_us = _choose_wait(settings)
    # Allocated here and inherited: semaphores and unnamed shared memory cannot be sent to running processes.
    lines, sleep_slots = size.allocate(kind)
    wakeup = WakeupPipe() if WakeupPipe.available else None
    # Shares cover all columns, so the largest end is the number of environments.
    flags = SharedMemoryArray((2, max(share.stop for of_one in shares for share in of_one)), bool)
    needs_reset: NDArray[np.bool_]
    which: NDArray[np.bool_]
    needs_reset, which = np.asarray(flags)
    needs_reset[:] = True  # before any worker starts, as workers write it from then on
    # Made before any worker, so that it can end the started ones if anything fails below.
    # It owns lines and flags, and frees them after the last process has ended.
    pool = WorkerPool(
        Control(size, lines, kind, spin_us, sleep_slots, wakeup),
        settings.timeout_s,
        shares,
        [lines, flags],
    )
    if kind == "compiled":
        # Importing numba takes a third of a second; the fork server does it once for all workers.
        preload_in_forkserver("parllel.system.waits.compiled")

    def makes(process: int) -> list[Callable[[], RowEnvironments] | None]:
        return [make(share) if share.start < share.stop else None for share in shares[process]]

    # Unpacked by SynchronizedWorker. The buffers come last, where `_start` reads them for its end.
    inherited = (lines, flags, sleep_slots, wakeup, settings.buffers)
    start = _Starter(settings, size, kind, spin_us, makes, inherited, pool.workers)
    try:
        for w in range(n_workers):
            # Returns once the process has started, so all make their environments in parallel.
            pool.workers.append(start(w))
        # Main's own environments last, while the workers make theirs.
        if any(share.start < share.stop for share in shares[n_workers]):
            pool.main = EnvironmentShare(
                makes(n_workers),
                shares[n_workers],
                needs_reset,
                which,
                reset_automatically=settings.reset_automatically,
                after_row=pool.after_row,
            )
    except BaseException:
        pool.end(None)  # the caller gets no pool, and some workers may have started
        raise
    return StartedPool(pool, needs_reset, which, start)


class _Starter:
    """Starts workers, also in place of others; the arguments are those of `start_pool` and what it made."""

    def __init__(
        self,
        settings: PoolSettings,
        size: ControlSize,
        kind: str,
        spin_us: float,
        makes: Callable[[int], Sequence[Callable[[], RowEnvironments] | None]],
        inherited: Any,
        workers: Sequence[Conversation],
    ) -> None:
        self._settings, self._makes = settings, makes
        self._waits = size, kind, spin_us
        self._inherited, self._workers = inherited, workers
        # Made once: it packs gymnasium's registry for all workers.
        self._target = RegistryTarget(serve)

    def __call__(
        self, w: int, handled: int | None = None, lost: Sequence[int] = ()
    ) -> Conversation:
        settings, cores = self._settings, self._settings.cores
        # Of two processes on one core only one should move, so each avoids those started before it.
        others = [threading.get_native_id(), *(worker.child.pid for worker in self._workers[:w])]
        of_worker = WorkerSettings(
            w,
            *self._waits,
            settings.shares[w],
            settings.reset_automatically,
            # Cycles if there are fewer cores than workers.
            None if cores is None else cores[w % len(cores)],
            others,
            settings.infos,
            handled,
            lost,
        )
        return _start(self._target, self._makes(w), of_worker, self._inherited, settings)


def _choose_wait(settings: PoolSettings) -> tuple[str, float]:
    """Return kind and longest spin of the waits. All processes that share words must use one kind."""
    kind = available_kinds()[0] if settings.wait is None else settings.wait
    if settings.restarts and kind == "semaphore":
        # Their number is fixed, and their names are gone once all processes have started.
        raise ValueError(
            'restarts: expected None with wait="semaphore", whose semaphores later processes cannot open; '
            "use another wait"
        )
    if settings.spin_us is not None:
        return kind, settings.spin_us
    # With fewer cores than processes, a spin would take the core from the process it waits for.
    return kind, SPIN_US if settings.n_workers < usable_cores() else 0.0


def _start(
    target: Callable[..., None],
    makes: Sequence[Callable[[], RowEnvironments] | None],
    of_worker: WorkerSettings,
    inherited: Any,
    settings: PoolSettings,
) -> Conversation:
    index = settings.index
    # The name includes the numbers of its environments, for messages about the worker.
    ranges = [(index + s.start, index + s.stop - 1) for s in of_worker.shares if s.start < s.stop]
    parts = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    name = f"worker {of_worker.worker} (environments {', '.join(parts)})"
    child = Child(
        target,
        (makes, of_worker),
        inherited=inherited,
        name=name,
        start_method=settings.start_method,
        start_timeout_s=settings.timeout_s,
    )
    # leave_s=0: a failed worker gets no time to close its environments, as the whole cage waits meanwhile.
    return Conversation(child, timeout_s=settings.timeout_s, buffers=inherited[-1], leave_s=0.0)


def _spread(n: int, sizes: list[int]) -> list[int]:
    """Divide `n` into parts as equal as possible, each at most its size; later parts are larger."""
    parts = [0] * len(sizes)
    for _ in range(n):
        # The smallest part that has room; of several, the last.
        g = max(range(len(sizes)), key=lambda g: (sizes[g] - parts[g] > 0, -parts[g], g))
        parts[g] += 1
    return parts


def _split_evenly(n: int, parts: int) -> list[int]:
    """Divide `n` into `parts` sizes as equal as possible, larger ones first."""
    return [n // parts + (part < n % parts) for part in range(parts)]


def _slices_of(sizes: list[int], start: int = 0) -> list[slice]:
    """Return adjacent slices of these sizes."""
    slices = []
    for size in sizes:
        slices.append(slice(start, start + size))
        start += size
    return slices
