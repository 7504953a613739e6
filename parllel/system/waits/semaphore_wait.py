"""Waits in Python with multiprocessing's semaphores, available on every platform.

    poster   writes the payload; fence; writes the word; fence; reads the sleepers; releases their semaphores
    sleeper  writes where it sleeps; fence; reads the word and the mark; sleeps if both are the old ones
    reader   reads the word; fence; reads the payload

Each side writes first and then reads the other's memory. So either the poster sees the sleeper, or the
sleeper sees the new word, and no process sleeps through a post.
"""

from __future__ import annotations

import platform
import time

import numpy as np
from numpy.typing import NDArray

from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.system.waits.spin_budget import SpinBudget
from parllel.system.waits.wait import LINE_WORDS, SPIN_US, Wait

_LOOKS = 8  # loads between two clock readings, which cost more


class SemaphoreWait(Wait):
    """Waits with plain loads in a Python loop, and one semaphore per process.

    The second word of a line is the mark that `wake` changes.

    Args:
        lines: as for Wait.
        sleep_slots: made before the processes start, and passed to all of them.
        spin_us: as for Wait.

    Raises:
        ValueError: if `sleep_slots` were made for a different number of lines.

    The first sleep of a process raises RuntimeError if all sleep slots are taken.
    """

    kind = "semaphore"

    def __init__(
        self, lines: NDArray[np.int32], sleep_slots: SleepSlots, *, spin_us: float = SPIN_US
    ) -> None:
        super().__init__(lines, spin_us=spin_us)
        if sleep_slots.n_lines != len(lines):
            raise ValueError(
                f"sleep_slots: expected slots for {len(lines)} lines, got slots for "
                f"{sleep_slots.n_lines}"
            )
        self._sleep_slots = sleep_slots
        # A memoryview loads and stores aligned items in single instructions, so no process sees half a word;
        # and it is faster than numpy.
        self._words = lines.data.cast("B").cast("i")
        self._first = [LINE_WORDS * line for line in range(len(lines))]
        # One per line, as usual waits differ.
        self._budgets = [SpinBudget(self._spin_ns) for _ in range(len(lines))]
        self._marks = [self._words[first + 1] for first in self._first]
        # x86 reorders neither two stores nor two loads, which is all that payload and word need. Other
        # architectures may, and use a fence.
        self._ordered = platform.machine().lower() in ("x86_64", "amd64", "i686", "x86")

    def settle(self) -> None:
        self._sleep_slots.forget_names()

    def load(self, line: int) -> int:
        value = self._words[self._first[line]]
        # Acquire: a payload read afterwards must not be older than the word.
        if not self._ordered:
            self._sleep_slots.fence()
        return value

    def post(self, line: int, value: int) -> None:
        # Release: the payload must be visible before the word.
        if not self._ordered:
            self._sleep_slots.fence()
        try:
            self._words[self._first[line]] = value
        except ValueError:
            raise ValueError(f"line {line}: expected an int32, got {value}") from None
        # Reads the sleepers after a fence on every machine, as even x86 lets a load overtake a store.
        self._sleep_slots.wake(line)

    def wake(self, line: int) -> None:
        mark = self._first[line] + 1
        # Any new number works; several processes may wake a line at once.
        self._words[mark] = (time.monotonic_ns() >> 4) & 0x7FFFFFFF
        # After the mark, which a woken sleeper checks again.
        self._sleep_slots.wake(line)

    def wait(self, line: int, seen: int, timeout_s: float) -> int:
        first = self._first[line]
        words = self._words
        if words[first] == seen and timeout_s > 0 and words[first + 1] == self._marks[line]:
            self._wait(line, seen, timeout_s)
        value = self.load(line)
        if value == seen:
            # Any `wake` until now has ended this wait, and must not end the next.
            self._marks[line] = words[first + 1]
        return value

    def _wait(self, line: int, seen: int, timeout_s: float) -> None:
        """Wait until the word or the mark changes, or the time is over."""
        left_s = timeout_s
        # Spins once per wait: after a slice of sleep a spin would gain nothing.
        if self._spin_ns:
            left_s -= self._spin(line, seen, timeout_s)
        while left_s > 0 and not self._changed(line, seen):
            # In slices, between which signal handlers run, and a pause of the machine is noticed.
            slice_s, began = min(left_s, SLICE_S), time.monotonic()
            self._sleep(line, seen, slice_s)
            left_s -= counted_s(began, slice_s)

    def _spin(self, line: int, seen: int, limit_s: float) -> float:
        """Spin, at most for `limit_s`; return the planned duration in seconds."""
        budget, words = self._budgets[line], self._words
        first, mark = self._first[line], self._marks[line]
        began, spin_ns = time.perf_counter_ns(), budget.next_ns()
        stop = began + min(spin_ns, limit_s * 1e9)
        now = began
        while now < stop and words[first] == seen and words[first + 1] == mark:
            for _ in range(_LOOKS):
                if words[first] != seen:
                    break
            now = time.perf_counter_ns()
        if spin_ns:
            budget.record(now - began, words[first] != seen)
        return spin_ns * 1e-9

    def _sleep(self, line: int, seen: int, seconds: float) -> None:
        """Sleep until woken or for `seconds`, unless the line has changed."""
        sleep_slot = self._sleep_slots.acquire_slot(line)  # a fence follows its store
        try:
            # Checked again: a post just before did not see this process sleeping, and did not wake it.
            if not self._changed(line, seen):
                self._sleep_slots.sleep(sleep_slot, seconds)
        finally:
            # Also after Ctrl-C: a slot left marked costs the poster a release each time.
            self._sleep_slots.release_slot(sleep_slot)

    def _changed(self, line: int, seen: int) -> bool:
        first = self._first[line]
        return self._words[first] != seen or self._words[first + 1] != self._marks[line]
