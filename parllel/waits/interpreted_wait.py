"""What waits without compiled code share: a loop in Python over loads through a memoryview."""

from __future__ import annotations

import time
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from parllel.counted_time import SLICE_S, counted_s
from parllel.waits.spin_budget import SpinBudget
from parllel.waits.wait import LINE_WORDS, SPIN_US, Wait

_LOOKS = 8  # between two looks at the clock


class InterpretedWait(Wait):
    """Wait in Python; a back end says how to sleep, how to wake, and how loads and stores are ordered.

    The second word of a line is the mark that `wake` changes.
    """

    def __init__(self, lines: NDArray[np.int32], *, spin_us: float = SPIN_US) -> None:
        super().__init__(lines, spin_us=spin_us)
        # Loads and stores of single items are single instructions, and quicker than numpy's.
        self._words = lines.data.cast("B").cast("i")
        self._first = [LINE_WORDS * line for line in range(len(lines))]
        self._budgets = [SpinBudget(self._spin_ns) for _ in range(len(lines))]
        self._marks = [self._words[first + 1] for first in self._first]

    @abstractmethod
    def _sleep(self, line: int, seen: int, seconds: float) -> None:
        """Sleep until woken, or for `seconds`, or any shorter time; not at all if `_changed`."""

    @abstractmethod
    def _wake_sleepers(self, line: int) -> None:
        """Wake all that sleep on a line; called after a store."""

    def _before_store(self) -> None:
        """Let what was written before be visible before what is written after."""

    def _after_load(self) -> None:
        """Let what is read after be no older than what was read before."""

    def load(self, line: int) -> int:
        value = self._words[self._first[line]]
        self._after_load()
        return value

    def post(self, line: int, value: int) -> None:
        self._before_store()
        try:
            self._words[self._first[line]] = value
        except ValueError:
            raise ValueError(f"line {line}: expected an int32, got {value}") from None
        self._wake_sleepers(line)

    def wake(self, line: int) -> None:
        mark = self._first[line] + 1
        # Any number that is not there yet will do; several processes may wake a line at once.
        self._words[mark] = (time.monotonic_ns() >> 4) & 0x7FFFFFFF
        self._wake_sleepers(line)

    def wait(self, line: int, seen: int, timeout_s: float) -> int:
        first = self._first[line]
        words = self._words
        if words[first] == seen and timeout_s > 0 and words[first + 1] == self._marks[line]:
            self._wait(line, seen, timeout_s)
        value = self.load(line)
        if value == seen:
            self._marks[line] = words[first + 1]
        return value

    def _wait(self, line: int, seen: int, timeout_s: float) -> None:
        """Return when the word or the mark changed, or the time is over."""
        left_s = timeout_s
        if self._spin_ns:
            left_s -= self._spin(line, seen, timeout_s)
        while left_s > 0 and not self._changed(line, seen):
            slice_s, began = min(left_s, SLICE_S), time.monotonic()
            self._sleep(line, seen, slice_s)
            left_s -= counted_s(began, slice_s)

    def _spin(self, line: int, seen: int, limit_s: float) -> float:
        """Look again and again, at most for `limit_s`; return how long that was to take."""
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

    def _changed(self, line: int, seen: int) -> bool:
        first = self._first[line]
        return self._words[first] != seen or self._words[first + 1] != self._marks[line]
