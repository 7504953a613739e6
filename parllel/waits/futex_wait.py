"""Waits on the futex of Linux without compiled code."""

from __future__ import annotations

import ctypes
import platform
import sys

import numpy as np
from numpy.typing import NDArray

from parllel.waits.interpreted_wait import InterpretedWait
from parllel.waits.wait import LINE_BYTES, SPIN_US

_FUTEX_CALL = 202
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # not the private kind: processes share the words
_ALL = 0x7FFFFFFF
_MACHINES = ("x86_64", "amd64")


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class FutexWait(InterpretedWait):
    """Wait with plain loads and the futex of Linux, called through ctypes.

    Only on x86-64, which never reorders two loads or two stores: what was written before the word is seen
    by whoever saw the word. It may delay a store past a later load, so a poster cannot look whether
    someone sleeps: each post is a system call, and the kernel looks. Arguments, errors and rules are
    those of Wait.

    Raises:
        ValueError: where it is not available.
    """

    kind = "futex"

    def __init__(self, lines: NDArray[np.int32], *, spin_us: float = SPIN_US) -> None:
        super().__init__(lines, spin_us=spin_us)
        if not self.available():
            raise ValueError(
                f"FutexWait: expected 64-bit Linux on one of {_MACHINES}, "
                f"got {sys.platform} on {platform.machine()}"
            )
        # By item: that makes a function of our own, whose types nobody else sets.
        self._syscall = ctypes.CDLL(None)["syscall"]
        self._syscall.restype = ctypes.c_long
        self._syscall.argtypes = [
            ctypes.c_long,
            ctypes.c_void_p,
            ctypes.c_long,
            ctypes.c_long,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_long,
        ]
        start = lines.ctypes.data
        self._addresses = [start + LINE_BYTES * line for line in range(len(lines))]

    @staticmethod
    def available() -> bool:
        """Return whether it works here."""
        return (
            sys.platform == "linux"
            and sys.maxsize > 2**32
            and platform.machine().lower() in _MACHINES
        )

    def _sleep(self, line: int, seen: int, seconds: float) -> None:
        time = _Timespec(0, int(seconds * 1e9))  # a slice is less than a second
        address = self._addresses[line]
        # Returns at once if the word is not `seen` any more: the kernel compares.
        self._syscall(_FUTEX_CALL, address, _FUTEX_WAIT, seen, ctypes.addressof(time), None, 0)

    def _wake_sleepers(self, line: int) -> None:
        self._syscall(_FUTEX_CALL, self._addresses[line], _FUTEX_WAKE, _ALL, None, None, 0)
