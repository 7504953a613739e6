"""The interface of all waits.

    line   [0]   the word               one process writes it, by `post`; any process reads it
           [1]   of the wait itself     who sleeps, and a mark that `wake` changes; see each kind
           [2:]  payload                its writer writes it before `post`; others read it after `wait`

`post` releases and `load` and `wait` acquire: a process that has seen a word sees all that was written
before it was posted, in the payload and in any other memory.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

# A cache line each: words next to each other, with two writers, would slow each other down.
LINE_WORDS = 16
LINE_BYTES = 64
SPIN_US = 50.0  # about what it costs to be woken, so spinning longer cannot be worth it


class Wait(ABC):
    """Wait for words in shared memory to change.

    Args:
        lines: C-contiguous int32 array [n_lines, 16] in shared memory, aligned to 64 bytes, zero at
            first. The caller owns it and keeps it mapped for as long as the wait is used.
        spin_us: the longest spin, in microseconds; 0 never spins. The budget follows the usual wait of
            each line: about twice that where this is within the limit, else none.

    Raises:
        ValueError: if the array or the limit is not as said.

    All processes of a line use the same kind of wait, each an object of its own: a fork may use the copy
    it got, other children make one over the same memory. A line has one writer, any number of
    processes wait for it. In a process, one thread at a time waits with an object.
    """

    kind: ClassVar[str]

    def __init__(self, lines: NDArray[np.int32], *, spin_us: float = SPIN_US) -> None:
        _check_lines(lines)
        if not (spin_us >= 0 and math.isfinite(spin_us)):
            raise ValueError(f"spin_us: expected a finite number of at least 0, got {spin_us!r}")
        self._lines = lines  # keeps the mapping, to which the kinds hold plain addresses
        self._spin_ns = int(spin_us * 1000)

    @property
    def n_lines(self) -> int:
        """Return how many lines there are."""
        return len(self._lines)

    @abstractmethod
    def load(self, line: int) -> int:
        """Return the word; what its writer wrote before is visible after (acquire)."""

    def loader(self, line: int) -> Callable[[], int]:
        """Return a function that loads the word of a line."""
        return partial(self.load, line)

    @abstractmethod
    def post(self, line: int, value: int) -> None:
        """Write the word, after all that was written before (release), and wake those that sleep on it.

        Raises:
            ValueError: if `value` is not an int32.
        """

    def poster(self, line: int) -> Callable[[int], object]:
        """Return a function that posts on a line, for values that are known to be int32."""
        return partial(self.post, line)

    @abstractmethod
    def wait(self, line: int, seen: int, timeout_s: float) -> int:
        """Return the word as soon as it differs from `seen`; `seen` when the time is over.

        A call of `wake` since the last wait on this line also ends it with `seen`, once. Raises what a
        signal handler raises (KeyboardInterrupt). A time-out of 0 or less looks once.
        """

    def wait_each(self, first: int, count: int, value: int, timeout_s: float) -> int:
        """Wait until `count` words from line `first` are all `value`; return how many are.

        Fewer are returned, counted up to the first that is not, after `timeout_s`, after a call of `wake`
        on the line that is waited for, or once that word is negative: what was to come will not.
        """
        deadline = time.monotonic() + timeout_s
        # One after the other: all have to come, so the order in which they do is of no account.
        for line in range(first, first + count):
            word = self.load(line)
            while word != value:
                # A negative word is final: its writer has failed, so there is nothing to wait for.
                seen = word
                word = self.wait(line, seen, deadline - time.monotonic()) if seen >= 0 else seen
                if word == seen:
                    return line - first
        return count

    @abstractmethod
    def wake(self, line: int) -> None:
        """End the waits on a line although its word did not change; any process may call it.

        It ends the next wait of a process that is not in one. In the worst case a sleeper notices it
        0.1 s later.
        """

    def settle(self) -> None:
        """Give up what only processes need that are yet to start: all others have made their wait."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: cannot be pickled, as the memory would be copied; expected "
            f"make_wait(lines, {self.kind!r}) over the same shared memory in the other process"
        )


def _check_lines(lines: Any) -> None:
    if not isinstance(lines, np.ndarray):
        raise ValueError(f"lines: expected an int32 array [n, 16], got {type(lines).__name__}")
    if lines.dtype != np.int32 or lines.ndim != 2 or lines.shape[1] != LINE_WORDS or not len(lines):
        raise ValueError(
            f"lines: expected int32 [n, {LINE_WORDS}], got {lines.dtype} {list(lines.shape)}"
        )
    if not lines.flags.c_contiguous or not lines.flags.writeable:
        raise ValueError("lines: expected a C-contiguous array that can be written")
    # Else a line would lie across two cache lines, and share one with its neighbour.
    if lines.ctypes.data % LINE_BYTES:
        raise ValueError(
            f"lines: expected memory aligned to {LINE_BYTES} bytes, "
            f"got an address {lines.ctypes.data % LINE_BYTES} bytes past that"
        )
