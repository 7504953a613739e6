"""Waits with the semaphores of multiprocessing, which every platform has."""

from __future__ import annotations

import platform

import numpy as np
from numpy.typing import NDArray

from parllel.processes.waits.berths import Berths
from parllel.processes.waits.interpreted_wait import InterpretedWait
from parllel.processes.waits.wait import SPIN_US


class SemaphoreWait(InterpretedWait):
    """Wait with plain loads and one semaphore per process.

    Args:
        lines: as for Wait.
        berths: made by `SemaphoreWait.make` before the processes start, and handed to all of them.
        spin_us: as for Wait.

    Raises:
        ValueError: if `berths` were made for another number of lines.

    The first sleep of a process raises RuntimeError if all berths are taken.
    """

    kind = "semaphore"

    def __init__(
        self, lines: NDArray[np.int32], berths: Berths, *, spin_us: float = SPIN_US
    ) -> None:
        super().__init__(lines, spin_us=spin_us)
        if berths.n_lines != len(lines):
            raise ValueError(f"berths: expected some for {len(lines)} lines, got {berths.n_lines}")
        self._berths = berths
        # x86 orders loads among themselves and stores too; others are told to.
        self._ordered = platform.machine().lower() in ("x86_64", "amd64", "i686", "x86")

    @staticmethod
    def make(n_lines: int, n_waiters: int) -> Berths:
        """Return what all processes need; see Berths."""
        return Berths(n_lines, n_waiters)

    def settle(self) -> None:
        self._berths.forget_names()

    def _before_store(self) -> None:
        if not self._ordered:
            self._berths.fence()

    def _after_load(self) -> None:
        if not self._ordered:
            self._berths.fence()

    def _sleep(self, line: int, seen: int, seconds: float) -> None:
        berth = self._berths.lie_down(line)
        try:
            if not self._changed(line, seen):
                self._berths.sleep(berth, seconds)
        finally:
            self._berths.get_up(berth)

    def _wake_sleepers(self, line: int) -> None:
        self._berths.wake(line)
