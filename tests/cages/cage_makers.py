"""Ways to make a cage for the tests, and to bind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from parllel.buffers import Samples
from parllel.cages import Cage, ProcessCage
from parllel.testing import process_runs
from parllel.testing.row_reference import make_samples

WITHIN_S = 1.0  # an error has to be there in this time
GONE_S = 5.0  # and the process gone in this


def forked(env_factory: Callable[[], Any], **options: Any) -> ProcessCage:
    return ProcessCage(env_factory, start_method="fork", **{"timeout_s": 20.0, **options})


MAKERS: dict[str, Callable[..., Any]] = {"Cage": Cage, "ProcessCage": forked}


def bind(cage: Any, example: Any, T: int = 4, B: int = 1, column: int = 0) -> Samples:
    """Bind a cage to a column of new samples."""
    samples = make_samples(example, T, B)
    cage.set_samples_buffer(samples, slice(column, column + 1))
    return samples


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE_S
    while process_runs(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def set_timeout(cage: Any, timeout_s: float) -> None:
    """Change how long the workers of a cage may take for an answer, now that it has started."""
    conversations = [cage._conversation] if isinstance(cage, ProcessCage) else cage._pool.workers
    for conversation in conversations:
        conversation.timeout_s = timeout_s
    if not isinstance(cage, ProcessCage):
        cage._pool._timeout_s = timeout_s
