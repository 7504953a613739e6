"""Cages whose workers are stopped in the middle of rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cage_makers import forked
from waiting import until

from parllel.buffers import Samples
from parllel.cages import CageInterface, SynchronizedProcessCage
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run_groups
from parllel.testing.cages.row_reference import make_samples

T = 4
NINE = partial(CountingEnv, 9)


def synchronized(n: int, *, factories: Any = None, **options: Any) -> SynchronizedProcessCage:
    settings = {"start_method": "fork", "timeout_s": 20.0, "seeds": range(n), **options}
    return SynchronizedProcessCage(factories or [NINE] * n, **settings)


KINDS: dict[str, Callable[[], Any]] = {
    "process": partial(forked, NINE),
    "words": partial(synchronized, 4, n_workers=2, n_groups=2),
    "semaphores": partial(synchronized, 3, n_workers=2, wait="semaphore"),
    "main": partial(synchronized, 4, n_workers=2, participate=True),
}


def bind(cage: CageInterface) -> Samples:
    """Bind a cage to samples of its own, and reset it."""
    samples = make_samples(CountingEnv(), T, cage.n, storage="managed")
    cage.set_samples_buffer(samples, slice(0, cage.n))
    run_groups(cage, "start_reset", 0)
    return samples


def last_pid(cage: Any) -> int:
    return int(cage.pids[-1] if hasattr(type(cage), "pids") else cage.pid)


@contextmanager
def stopped(cage: Any) -> Iterator[int]:
    """Stop a worker meanwhile."""
    pid = last_pid(cage)
    os.kill(pid, signal.SIGSTOP)
    # The signal takes its time, in which the worker could do a row.
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T")
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):  # it was killed
            os.kill(pid, signal.SIGCONT)
