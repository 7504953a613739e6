"""Waits in compiled code, without the GIL.

    wait   ---- one slice at most ---->   compiled.wait_slice    spins, then sleeps, without the GIL
           <--- word, WOKEN or UNCHANGED
           between two slices Python runs signal handlers, and checks by the clock whether the machine
           was paused

`compiled.py` documents who writes and reads each word.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib import util
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiles
from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.waits.wait import LINE_BYTES, SPIN_US, Wait

_MACHINES = ("x86_64", "amd64", "aarch64")


class CompiledWait(Wait):
    """Waits with atomic loads and Linux's futex, in functions compiled by numba.

    The first instance imports numba and compiles, or loads the cached code. Arguments, errors and rules are
    those of Wait.

    Raises:
        ValueError: if not available: it needs a compiling numba, and Linux on x86-64 or arm64.
    """

    kind = "compiled"

    def __init__(self, lines: NDArray[np.int32], *, spin_us: float = SPIN_US) -> None:
        super().__init__(lines, spin_us=spin_us)
        if not self.available():
            raise ValueError(
                f"CompiledWait: expected numba and 64-bit Linux on one of {_MACHINES}, got "
                f"{sys.platform} on {platform.machine()}"
                f"{'' if compiles() else ', and numba with DISABLE_JIT'}"
            )
        # Imported here, as it imports numba, which takes a third of a second.
        from parllel.system.waits import compiled

        self._load = compiled.load
        self._post = compiled.post
        self._wait = compiled.wait_slice
        self._wait_each = compiled.wait_each_slice
        self._wake = compiled.wake
        self._woken, self._unchanged = compiled.WOKEN, compiled.UNCHANGED
        # Python integers, computed once: `lines.ctypes` and numpy scalars would cost microseconds per call.
        start = lines.ctypes.data
        self._addresses = [start + LINE_BYTES * line for line in range(len(lines))]
        # Private memory: the usual wait for a line differs between processes.
        self._memory = np.zeros((len(lines), compiled.MEMORY_WORDS), np.int64)
        self._memory[:, 0] = self._spin_ns // 2
        # Ignores calls of `wake` before this object was made.
        self._memory[:, 2] = [compiled.mark_of(address) for address in self._addresses]
        first, stride = self._memory.ctypes.data, self._memory.strides[0]
        self._memories = [first + stride * line for line in range(len(lines))]

    @staticmethod
    def available() -> bool:
        """Return whether this kind works on this machine."""
        return (
            sys.platform == "linux"  # for the futex
            # A 32-bit Python may run on such a machine, and its C library takes different arguments.
            and sys.maxsize > 2**32
            and platform.machine().lower() in _MACHINES
            and util.find_spec("numba") is not None
            and compiles()  # with DISABLE_JIT the loops would run in Python, which has no atomics
        )

    def load(self, line: int) -> int:
        return self._load(self._addresses[line])

    def loader(self, line: int) -> Callable[[], int]:
        return partial(self._load, self._addresses[line])

    def post(self, line: int, value: int) -> None:
        if not self._post(self._addresses[line], value):
            raise ValueError(f"line {line}: expected an int32, got {value}")

    def poster(self, line: int) -> Callable[[int], object]:
        return partial(self._post, self._addresses[line])

    def wait(self, line: int, seen: int, timeout_s: float) -> int:
        address, memory = self._addresses[line], self._memories[line]
        spin_ns, left_s = self._spin_ns, timeout_s
        while True:
            slice_s, began = min(left_s, SLICE_S), monotonic()
            slice_ns = int(slice_s * 1e9) if slice_s > 0 else 0
            value = self._wait(address, seen, memory, spin_ns, slice_ns)
            if value < self._woken:
                return value
            left_s -= counted_s(began, slice_s)
            if value == self._woken or left_s <= 0:
                return seen
            spin_ns = 0  # spins once per wait: after a slice of sleep the answer is late anyway

    def wait_each(self, first: int, count: int, value: int, timeout_s: float) -> int:
        address, memory = self._addresses[first], self._memories[first]
        spin_ns, left_s = self._spin_ns, timeout_s
        while True:
            slice_s, began = min(left_s, SLICE_S), monotonic()
            slice_ns = int(slice_s * 1e9) if slice_s > 0 else 0
            found = self._wait_each(address, count, value, memory, spin_ns, slice_ns)
            # The result is a count, plus WOKEN or UNCHANGED. These are so far apart that one comparison
            # distinguishes the three cases.
            if found < self._unchanged:
                return found if found < self._woken else found - self._woken
            left_s -= counted_s(began, slice_s)
            if left_s <= 0:
                return found - self._unchanged
            spin_ns = 0  # spins once per wait

    def each_waiter(self, first: int, count: int, timeout_s: float) -> Callable[[int], int]:
        if timeout_s > SLICE_S:
            return super().each_waiter(first, count, timeout_s)
        address, memory = self._addresses[first], self._memories[first]
        spin_ns, slice_ns = self._spin_ns, int(timeout_s * 1e9)
        wait_slice, woken, unchanged = self._wait_each, self._woken, self._unchanged

        def wait_each(value: int) -> int:
            # One slice, for which the clock need not be read. It may end earlier if the machine was paused.
            found = wait_slice(address, count, value, memory, spin_ns, slice_ns)
            if found < woken:
                return found
            return found - unchanged if found >= unchanged else found - woken

        return wait_each

    def wake(self, line: int) -> None:
        self._wake(self._addresses[line])
