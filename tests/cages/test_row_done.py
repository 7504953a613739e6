"""Rows of workers that are stopped, killed or slow are asked whether they are done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cage_makers import forked

from parllel.cages import CageInterface, SynchronizedProcessCage
from parllel.errors import WorkerDiedError
from parllel.testing import CountingEnv
from parllel.testing.cage_hooks import await_done, run_groups
from parllel.testing.row_reference import make_samples

T = 4
NINE = partial(CountingEnv, 9)


def synchronized(n: int, **options: Any) -> SynchronizedProcessCage:
    return SynchronizedProcessCage(
        [NINE] * n, start_method="fork", timeout_s=20.0, seeds=range(n), **options
    )


KINDS: dict[str, Callable[[], Any]] = {
    "process": partial(forked, NINE),
    "words": partial(synchronized, 4, n_workers=2, n_groups=2),
    "semaphores": partial(synchronized, 3, n_workers=2, wait="semaphore"),
    "main": partial(synchronized, 4, n_workers=2, participate=True),
}


def bind(cage: CageInterface) -> None:
    """Bind a cage to samples of its own, and reset it."""
    samples = make_samples(CountingEnv(), T, cage.n, storage="managed")
    cage.set_samples_buffer(samples, slice(0, cage.n))
    run_groups(cage, "start_reset", 0)


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


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_not_done_while_a_worker_is_stopped(kind: str) -> None:
    with KINDS[kind]() as cage:
        bind(cage)
        for start in (partial(cage.start_row, 0), partial(cage.start_decorrelation, [1] * cage.n)):
            with stopped(cage):
                start()
                assert not cage.row_done()
                time.sleep(0.05)  # for the others to finish their shares
                assert not cage.row_done()
            await_done(cage)
            cage.finish_row()
        assert cage.collect_completed_trajs() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_a_worker_that_was_killed_is_done(kind: str) -> None:
    with KINDS[kind]() as cage:
        bind(cage)
        with stopped(cage) as pid:
            cage.start_row(0)
            assert not cage.row_done()
            os.kill(pid, signal.SIGKILL)
            await_done(cage)
            with pytest.raises(WorkerDiedError, match="SIGKILL during step at row 0"):
                cage.finish_row()
