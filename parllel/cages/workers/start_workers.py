"""Start the processes of a SynchronizedProcessCage.

    main: start_pool                                          worker w: serve
    allocates lines, flags, slots and a bell     -------->    inherits them: they cannot be sent later
    Child, with the factories of its columns     -------->    makes its environments, then waits for commands
    makes its own environments meanwhile
    WorkerPool.await_spaces                      <--------    first words: the spaces, or why it failed

What goes wrong in a worker is raised by the first call that needs its environments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.kinds import SharedMemoryArray
from parllel.buffers.conversation import Conversation
from parllel.cages.env_registry import WithRegistry
from parllel.cages.native.vector_env_factory import VectorEnvFactory
from parllel.cages.stepping.environments_for import environments_for
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.workers.bell import Bell
from parllel.cages.workers.control import Control, ControlSize
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.cages.workers.synchronized_worker import WorkerSettings, serve
from parllel.cages.workers.worker_pool import WorkerPool
from parllel.system.processes.child import Child
from parllel.system.processes.cores import usable_cores
from parllel.system.processes.fork_server import preload_in_forkserver
from parllel.system.waits.make_wait import available_kinds

SPIN_US = 1000.0  # the longest spin; most waits are for as long as an agent thinks


@dataclass(frozen=True)
class PoolSettings:
    """How the processes are started; see SynchronizedProcessCage.

    Attributes:
        n_workers: how many there are besides this process.
        shares: columns of each process in each group, relative to the cage's first; main's last.
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


def environments_of(
    env_factories: Sequence[EnvFactory] | VectorEnvFactory,
    seeds: Sequence[Any],
    traj_info: TrajInfoFactory,
    reset_automatically: bool,
    index: int,
    check: str,
) -> Callable[[slice], Callable[[], RowEnvironments]]:
    """Return what returns, for some columns of a cage, a function that makes their environments."""

    def make(share: slice) -> Callable[[], RowEnvironments]:
        # Only what these columns need, as it is pickled for the process that steps them.
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
        )

    return make


def start_pool(
    make: Callable[[slice], Callable[[], RowEnvironments]], settings: PoolSettings
) -> tuple[WorkerPool, NDArray[np.bool_]]:
    """Start all workers, and make main's own environments.

    make: from `environments_of`.

    Returns the pool, and `needs_reset`, [n], which all its processes share. What goes wrong in a worker is
    raised by the first call that needs it.
    """
    shares, n_workers = settings.shares, settings.n_workers
    size = ControlSize(n_workers, len(shares[0]))
    kind, spin_us = _choose_wait(settings)
    lines, sleep_slots = size.allocate(kind)
    bell = Bell() if Bell.available else None
    # Shares cover all columns, so the last one tells how many environments there are.
    flags = SharedMemoryArray((max(share.stop for of_one in shares for share in of_one),), bool)
    needs_reset: NDArray[np.bool_] = np.asarray(flags)
    needs_reset[:] = True  # before any worker starts, as those write it from then on
    # Before any worker, so that it can end those that were started, whatever goes wrong from here on.
    pool = WorkerPool(
        Control(size, lines, kind, spin_us, sleep_slots, bell),
        settings.timeout_s,
        shares,
        [lines, flags],
    )
    if kind == "compiled":
        # It imports numba, which takes a third of a second: once, instead of in each worker.
        preload_in_forkserver("parllel.system.waits.compiled")

    def makes(process: int) -> list[Callable[[], RowEnvironments] | None]:
        return [make(share) if share.start < share.stop else None for share in shares[process]]

    # Made once, as it packs what is registered with gymnasium for all workers alike.
    target = WithRegistry(serve)
    try:
        for w in range(n_workers):
            cores = settings.cores
            # From the beginning again where there are fewer cores than workers.
            core = None if cores is None else cores[w % len(cores)]
            # Of two that share a core one is to move, not both: so each avoids those before it.
            others = [threading.get_native_id(), *(worker.child.pid for worker in pool.workers)]
            of_worker = WorkerSettings(
                w, size, kind, spin_us, shares[w], settings.reset_automatically, core, others
            )
            inherited = (lines, flags, sleep_slots, bell, settings.buffers)
            pool.workers.append(_start(target, makes(w), of_worker, inherited, settings))
        # Main's own environments last: the workers make theirs at the same time.
        if any(share.start < share.stop for share in shares[n_workers]):
            pool.main = EnvironmentShare(
                makes(n_workers),
                shares[n_workers],
                needs_reset,
                reset_automatically=settings.reset_automatically,
                after_row=pool.after_row,
            )
    except BaseException:
        pool.end(None)  # the caller gets no pool to end, and some workers may have started
        raise
    return pool, needs_reset


def _choose_wait(settings: PoolSettings) -> tuple[str, float]:
    """Return kind and longest spin of the waits of all processes: those that share words use one kind."""
    kind = available_kinds()[0] if settings.wait is None else settings.wait
    if settings.spin_us is not None:
        return kind, settings.spin_us
    # With fewer cores than processes a spin would keep the core from the process it waits for.
    return kind, SPIN_US if settings.n_workers < usable_cores() else 0.0


def _start(
    target: Callable[..., None],
    makes: Sequence[Callable[[], RowEnvironments] | None],
    of_worker: WorkerSettings,
    inherited: Any,
    settings: PoolSettings,
) -> Conversation:
    index = settings.index
    # With the numbers of its environments, by which messages about a worker name what it was stepping.
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
    # One that fails gets no time to close its environments, as the others could not go on meanwhile.
    return Conversation(child, timeout_s=settings.timeout_s, buffers=inherited[-1], leave_s=0.0)
