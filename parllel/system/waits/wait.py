"""Interface of all waits.

    line   [0]   the word               one process writes it, with `post`; any process reads it
           [1]   used by the wait       sleepers, and a mark that `wake` changes; see each kind
           [2:]  payload                its writer writes it before `post`; others read it after `wait`

`post` has release and `load` and `wait` have acquire semantics: a process that has seen a word also sees
everything written before it was posted, in the payload and in any other memory.
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

# One cache line each, as two writers of adjacent words would slow each other down (false sharing).
LINE_WORDS = 16
LINE_BYTES = 64
SPIN_US = 50.0  # about the cost of a wakeup; a longer spin cannot pay off


class Wait(ABC):
    """Waits for words in shared memory to change.

    Args:
        lines: C-contiguous int32 array [n_lines, 16] in shared memory, aligned to 64 bytes, initially
            zero. The caller owns it and keeps it mapped while the wait is in use.
        spin_us: longest spin in microseconds; 0 never spins. The actual spin follows the usual wait of
            each line: about twice that if this is within the limit, else none.

    Raises:
        ValueError: if the array or the limit is invalid.

    All processes of a line must use the same kind of wait, each with its own object: a fork may use its
    copy, other children make one over the same memory. A line has one writer and any number of waiting
    processes. Within a process, only one thread at a time may wait with an object.
    """

    kind: ClassVar[str]

    def __init__(self, lines: NDArray[np.int32], *, spin_us: float = SPIN_US) -> None:
        _check_lines(lines)
        if not (spin_us >= 0 and math.isfinite(spin_us)):
            raise ValueError(f"spin_us: expected a finite number of at least 0, got {spin_us!r}")
        self._lines = lines  # keeps the memory mapped, as subclasses hold plain addresses
        self._spin_ns = int(spin_us * 1000)

    @property
    def n_lines(self) -> int:
        """Number of lines."""
        return len(self._lines)

    @abstractmethod
    def load(self, line: int) -> int:
        """Return the word. Everything that its writer wrote before is visible afterwards (acquire)."""

    def loader(self, line: int) -> Callable[[], int]:
        """Return a function that loads the word of a line."""
        return partial(self.load, line)

    @abstractmethod
    def post(self, line: int, value: int) -> None:
        """Write the word, after everything written before (release), and wake its sleepers.

        Raises:
            ValueError: if `value` is not an int32.
        """

    def poster(self, line: int) -> Callable[[int], object]:
        """Return a function that posts on a line, for values known to be int32."""
        return partial(self.post, line)

    @abstractmethod
    def wait(self, line: int, seen: int, timeout_s: float) -> int:
        """Return the word as soon as it differs from `seen`, or `seen` after the time-out.

        A call of `wake` since the last wait on this line also ends it with `seen`, once. Raises exceptions
        of signal handlers (KeyboardInterrupt). A time-out of 0 or less polls once.
        """

    def wait_each(self, first: int, count: int, value: int, timeout_s: float) -> int:
        """Wait until `count` words from line `first` are all `value`; return the number of those that are.

        The number is below `count`, up to the first word that differs, after `timeout_s`, after a call of
        `wake` on the awaited line, or if its word is negative, which means that its writer has failed.
        """
        deadline = time.monotonic() + timeout_s
        # One after the other: all are needed, so their order does not matter.
        for line in range(first, first + count):
            word = self.load(line)
            while word != value:
                # A negative word is final, as its writer has failed.
                seen = word
                word = self.wait(line, seen, deadline - time.monotonic()) if seen >= 0 else seen
                if word == seen:
                    return line - first
        return count

    def each_waiter(self, first: int, count: int, timeout_s: float) -> Callable[[int], int]:
        """Return a function that calls `wait_each` for a value, as it is called again and again."""
        return lambda value: self.wait_each(first, count, value, timeout_s)

    @abstractmethod
    def wake(self, line: int) -> None:
        """End the waits on a line without changing its word; any process may call it.

        For a process that is not waiting, it ends the next wait. In the worst case a sleeper notices it 0.1 s
        later.
        """

    def settle(self) -> None:
        """Release resources that only starting processes need, once all processes have made their wait."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: cannot be pickled, because its memory would be copied; call "
            f"make_wait(lines, {self.kind!r}) with the same shared memory in the other process"
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
    # Otherwise a line would span two cache lines, and share one with its neighbour.
    if lines.ctypes.data % LINE_BYTES:
        raise ValueError(
            f"lines: expected memory aligned to {LINE_BYTES} bytes, "
            f"got an address {lines.ctypes.data % LINE_BYTES} bytes past that"
        )
