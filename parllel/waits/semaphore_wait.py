"""Waits with the semaphores of multiprocessing, which every platform has."""

from __future__ import annotations

import platform

import numpy as np
from numpy.typing import NDArray

from parllel.waits.interpreted_wait import InterpretedWait
from parllel.waits.sleep_slots import SleepSlots
from parllel.waits.wait import SPIN_US


class SemaphoreWait(InterpretedWait):
    """Wait with plain loads and one semaphore per process.

    Args:
        lines: as for Wait.
        sleep_slots: made by `SemaphoreWait.make` before the processes start, and handed to all of them.
        spin_us: as for Wait.

    Raises:
        ValueError: if `sleep_slots` were made for another number of lines.

    The first sleep of a process raises RuntimeError if all sleep_slots are taken.
    """

    kind = "semaphore"

    def __init__(
        self, lines: NDArray[np.int32], sleep_slots: SleepSlots, *, spin_us: float = SPIN_US
    ) -> None:
        super().__init__(lines, spin_us=spin_us)
        if sleep_slots.n_lines != len(lines):
            raise ValueError(
                f"sleep_slots: expected some for {len(lines)} lines, got {sleep_slots.n_lines}"
            )
        self._sleep_slots = sleep_slots
        # x86 orders loads among themselves and stores too; others are told to.
        self._ordered = platform.machine().lower() in ("x86_64", "amd64", "i686", "x86")

    @staticmethod
    def make(n_lines: int, n_waiters: int) -> SleepSlots:
        """Return what all processes need; see SleepSlots."""
        return SleepSlots(n_lines, n_waiters)

    def settle(self) -> None:
        self._sleep_slots.forget_names()

    def _before_store(self) -> None:
        if not self._ordered:
            self._sleep_slots.fence()

    def _after_load(self) -> None:
        if not self._ordered:
            self._sleep_slots.fence()

    def _sleep(self, line: int, seen: int, seconds: float) -> None:
        sleep_slot = self._sleep_slots.lie_down(line)
        try:
            if not self._changed(line, seen):
                self._sleep_slots.sleep(sleep_slot, seconds)
        finally:
            self._sleep_slots.get_up(sleep_slot)

    def _wake_sleepers(self, line: int) -> None:
        self._sleep_slots.wake(line)
