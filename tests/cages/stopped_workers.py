"""Cages whose workers are stopped in the middle of rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cage_makers import forked, synchronized
from waiting import until

from parllel.testing import CountingEnv

NINE = partial(CountingEnv, 9)


KINDS: dict[str, Callable[[], Any]] = {
    "process": partial(forked, NINE),
    "words": partial(synchronized, [NINE] * 4, n_groups=2),
    "semaphores": partial(synchronized, [NINE] * 3, wait="semaphore"),
    "main": partial(synchronized, [NINE] * 4, participate=True),
}


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
