"""Sums over several learners on one machine, in shared memory.

    learner r   writes    its part of an array -> slot [k % 2, r];  then word [k % 2, r] = k
                waits     until the words of all learners are k
                reads     slots [k % 2, 0 ... n - 1], added up in this order by each learner

k counts the exchanges. A learner writes to a slot again two exchanges later. By then all others have posted
the exchange between, which they do only after they have read that slot. A learner that leaves sets a word of
its own, as others may still have to read its last number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.kinds import SharedMemoryArray
from parllel.errors import ClosedError, WorkerError
from parllel.system.waits.make_wait import available_kinds, make_wait
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.system.waits.wait import LINE_WORDS, Wait

SLOT_BYTES = 1 << 18  # of an array that is exchanged at a time; a processor's cache holds several
_KIND = slice(2, 4)  # words of a line: number of elements, and numpy's number of the dtype
_LOOK_S = 0.1  # between two looks at whether the others are alive
_LAST = 2**31 - 2  # an even number, so that numbers of exchanges alternate when they start again


class LearnerLostError(WorkerError):
    """Another learner has gone. Raised in learners other than the first, which knows why."""


class LearnerExchange:
    """Shared memory of `n` learners, passed to their processes when these start. Each calls `open` once.

    Args:
        n: number of learners.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._kind = available_kinds()[0]
        # The numbers of even exchanges, those of odd ones, and 1 for those that have left.
        self._lines = SharedMemoryArray((3 * n, LINE_WORDS), np.int32)
        self._memory = SharedMemoryArray((2, n, SLOT_BYTES), np.uint8)
        self._sleep_slots = SleepSlots(3 * n, n) if self._kind == "semaphore" else None
        self._wait: Wait | None = None

    def open(self, rank: int, timeout_s: float, look: Callable[[], object]) -> None:
        """Take part as learner `rank`.

        timeout_s: time limit of an exchange.  look: called now and then while this learner waits; may raise.
        """
        self._rank, self._timeout_s, self._look = rank, timeout_s, look
        self._number = 0
        self._slots = np.asarray(self._memory)
        self._words = np.asarray(self._lines)
        self._wait = make_wait(self._words, self._kind, sleep_slots=self._sleep_slots)

    def settle(self) -> None:
        """Release what only starting processes need, once all learners have called `open`."""
        if self._wait is not None:
            self._wait.settle()

    def add(self, array: NDArray[Any]) -> None:
        """Replace a contiguous array, in place, by the sum over all learners, rounded alike in all.

        All learners must call it, with arrays of equal shape and dtype.

        Raises:
            ClosedError: before `open`, and after `leave`.
            LearnerLostError: if another learner has left, or does not come within the time limit.
            ValueError: if the array is not contiguous, or the learners' arrays differ in size or dtype.
        """
        if not array.flags.c_contiguous:
            raise ValueError(
                f"Learners: add: expected a contiguous array, got strides {array.strides}"
            )
        flat = array.reshape(-1)
        for part, slots in self._exchanged(flat):
            np.add.reduce(slots, axis=0, dtype=part.dtype, out=part)

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays of all learners, in their order. Otherwise like `add`."""
        own = np.ascontiguousarray(array)
        found = [np.empty_like(own) for _ in range(self._n)]
        flat, start = own.reshape(-1), 0
        for part, slots in self._exchanged(flat):
            for one, slot in zip(found, slots, strict=True):
                one.reshape(-1)[start : start + len(part)] = slot
            start += len(part)
        return found

    def leave(self) -> None:
        """End the waits of the others, and take part no more. Idempotent."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.post(2 * self._n + self._rank, 1)
            for line in (self._rank, self._n + self._rank):
                wait.wake(line)

    def close(self) -> None:
        """Leave, and release the memory. Idempotent."""
        self.leave()
        # Memory is freed with its last view.
        self._slots, self._words = np.empty((2, 0, 0), np.uint8), np.empty((0, 0), np.int32)
        self._memory.close()
        self._lines.close()

    def _exchanged(self, flat: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield each part of a flat array, and the same part of all learners; valid until the next."""
        size, kind = SLOT_BYTES // flat.itemsize, (len(flat) % 2**31, flat.dtype.num)
        for start in range(0, len(flat), size):
            if self._wait is None:
                raise ClosedError("Learners: used before the run has started, or after its end")
            part = flat[start : start + size]
            self._number = number = self._number % _LAST + 1
            slots = self._slots[number % 2, :, : part.nbytes].view(flat.dtype)
            slots[self._rank] = part
            # What they exchange, in the line of the word.
            self._words[number % 2 * self._n + self._rank, _KIND] = kind
            self._meet(self._wait, number)
            self._check_alike(number % 2 * self._n, kind)
            yield part, slots

    def _check_alike(self, first: int, kind: tuple[int, int]) -> None:
        kinds = self._words[first : first + self._n, _KIND].tolist()
        for rank, other in enumerate(kinds):
            if tuple(other) != kind:
                sizes = " and ".join(f"{n} elements (dtype {code})" for n, code in (kind, other))
                raise ValueError(
                    f"learners {self._rank} and {rank}: expected arrays of one size and dtype, got {sizes}"
                )

    def _meet(self, wait: Wait, number: int) -> None:
        first, n = number % 2 * self._n, self._n
        wait.post(first + self._rank, number)
        deadline = time.monotonic() + self._timeout_s
        while (came := wait.wait_each(first, n, number, _LOOK_S)) < n:
            # In this order: it may have come before it left.
            if wait.load(2 * n + came) and wait.load(first + came) != number:
                raise LearnerLostError(f"learner {self._rank}: learner {came} has left")
            self._look()
            if time.monotonic() > deadline:
                raise LearnerLostError(
                    f"learner {self._rank}: learner {came} did not answer within {self._timeout_s:g} s"
                )

    def __getstate__(self) -> dict[str, Any]:
        names = ("_n", "_kind", "_lines", "_memory", "_sleep_slots")
        return {**{name: getattr(self, name) for name in names}, "_wait": None}
