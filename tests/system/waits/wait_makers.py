"""Waits over lines that a fork shares."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from parllel.system.waits import Wait, available_kinds, make_wait
from parllel.system.waits.sleep_slots import SleepSlots

KINDS = available_kinds()
LONG_S = 30.0


def shared_lines(n_lines: int) -> NDArray[np.int32]:
    """Return lines whose mapping goes with their last view."""
    return np.frombuffer(mmap.mmap(-1, 64 * n_lines), np.int32).reshape(n_lines, 16)


def make(kind: str, n_lines: int = 2, n_waiters: int = 2, spin_us: float = 50.0) -> Wait:
    """Return a wait over lines of its own."""
    return make_over(shared_lines(n_lines), kind, n_waiters, spin_us)


def make_over(
    lines: NDArray[np.int32], kind: str, n_waiters: int = 2, spin_us: float = 50.0
) -> Wait:
    """Return a wait over `lines`."""
    sleep_slots = SleepSlots(len(lines), n_waiters) if kind == "semaphore" else None
    return make_wait(lines, kind, spin_us=spin_us, sleep_slots=sleep_slots)
