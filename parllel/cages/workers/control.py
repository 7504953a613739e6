"""Shared words between main and the workers of a SynchronizedProcessCage: numbers of commands.

    line              who writes   word                                     payload
    0                 main         go: number of the last command           records of the last commands
    1 + g W + w       worker w     done: number of the last command of      -
                                   group g that it finished; FAILED in
                                   all of them once the worker has failed;
                                   LOST after a row without a step, in a
                                   worker that replaces a dead one, until
                                   main writes the number
    1 + (G + 1) W     main         listening: 1 once it wants a byte for     -
                                   each done word, see wakeup_pipe.py
    (g = n_groups = G for calls, which concern the whole cage; their arguments go over pipes)

The payload of a done line begins with the length of a message in one of the worker's mail boxes, which follow
the lines, one for each group and one for calls: the infos of the group's last row, or the answer to a call.
TOO_LONG means that the message does not fit, and goes over the pipe. The next word is the number of rows of a
rollout that worker w has finished, which main reads after a long wait.

    main:    record of command n; go = n                     worker: go > handled; record of handled + 1;
             waits for W words of a group to be n                    does it; done = handled + 1

record of a command   word 0, from its lowest bit:  operation, 3 bits | group, 3 bits | batch, 25 bits
                      word 1:                       row, relative to that batch

The batch is the number of the current batch of a buffer with several. Each command carries it, so a change
needs no other message: a worker that reads a new number switches first. Main changes it only while no command
is in progress, so all later commands agree on it.

A record is overwritten only `n_groups + 2` commands later. By then every worker has read it, as each group,
and calls, have at most one command in progress, and every worker takes commands in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from parllel.arrays.array import Array
from parllel.arrays.kinds import SharedMemoryArray
from parllel.cages.workers.wakeup_pipe import WakeupPipe
from parllel.system.waits.make_wait import make_wait
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.system.waits.wait import LINE_BYTES, LINE_WORDS, Wait

GO = 0
FAILED = -1
LOST = -2
TOO_LONG = -1
# RESET_SOME resets the environments marked in a row of flags that main has written before.
STEP, RANDOM, RESET_ALL, RESET_ENDED, CALL, ROLLOUT, RESET_SOME, STEP_OR_RESET = range(8)
# The row in the record of a call. Collecting, which happens in every batch, needs no message over the pipe.
BY_PIPE, COLLECT_ALL, COLLECT_TRUNCATED, COLLECT_AT_ONCE = range(4)
_PAYLOAD = 2  # words of a line before its payload
_RECORD = 2  # words: command with its group and batch, row
MAX_GROUPS = (LINE_WORDS - _PAYLOAD) // _RECORD - 2
_GROUP_SHIFT, _BATCH_SHIFT = 3, 6
_THREE_BITS = 7
MAX_BATCHES = 2 ** (31 - _BATCH_SHIFT)
MAIL_LINES = 256  # 16 KiB for each worker


class ControlSize:
    """Layout of the control lines; picklable."""

    def __init__(self, n_workers: int, n_groups: int) -> None:
        if n_groups > MAX_GROUPS:
            raise ValueError(f"n_groups: expected at most {MAX_GROUPS}, got {n_groups}")
        self.n_workers, self.n_groups = n_workers, n_groups
        # One per group and one for calls may be unread at once; one more is being written.
        self.n_records = n_groups + 2
        # Numbers wrap below the largest int32, at a multiple of n_records so that records stay in sequence.
        self.last_number = (2**31 - 1) // self.n_records * self.n_records

    @property
    def n_lines(self) -> int:
        """Total number of lines."""
        return self.listening_line + 1

    @property
    def listening_line(self) -> int:
        """Index of the line in which the main process requests wakeup bytes."""
        return 1 + (self.n_groups + 1) * self.n_workers

    def done_line(self, group: int, worker: int = 0) -> int:
        """Return the index of a worker's done line for a group."""
        return 1 + group * self.n_workers + worker

    def allocate(self, kind: str) -> tuple[Array, SleepSlots | None]:
        """Allocate the lines and, for semaphores, the sleep slots; pass both to the workers."""
        # One slot more than workers, as main sleeps too.
        sleep_slots = SleepSlots(self.n_lines, self.n_workers + 1) if kind == "semaphore" else None
        n_lines = self.n_lines + self.n_workers * (self.n_groups + 1) * MAIL_LINES
        return SharedMemoryArray((n_lines, LINE_WORDS), np.int32), sleep_slots


class Control:
    """One process's access to the control lines.

    Args:
        size: the layout of the cage's control lines.
        lines, sleep_slots: the return values of `size.allocate`.
        kind, spin_us: the kind of wait, and its longest spin in microseconds.
        wakeup: the cage's wakeup pipe, closed with this object; None where unavailable.
    """

    def __init__(
        self,
        size: ControlSize,
        lines: Array,
        kind: str,
        spin_us: float,
        sleep_slots: SleepSlots | None,
        wakeup: WakeupPipe | None,
    ) -> None:
        memory = np.asarray(lines)
        self.size = size
        words = memory[: size.n_lines]
        self.wait: Wait = make_wait(words, kind, spin_us=spin_us, sleep_slots=sleep_slots)
        # A memoryview loads and stores an aligned int in one instruction, so no process sees half a word; and
        # it is faster than numpy.
        self._words: Any = memory.data.cast("B").cast("i")
        mail = memory[size.n_lines :].reshape(size.n_groups + 1, size.n_workers, -1)
        self._mail: list[list[Any]] = [[box.data.cast("B") for box in boxes] for boxes in mail]
        self._records: Any = self._words[_PAYLOAD:LINE_WORDS]
        # Looked up once, as for `GroupRows`.
        self._last_number, self._n_records = size.last_number, size.n_records
        self.number = 0
        self._batch = 0  # already shifted to its bits in a record
        self._post_go = self.wait.poster(GO)
        self._wakeup = wakeup

    def command(self, operation: int, group: int, row: int) -> int:
        """Send a command for the current batch to all workers; return its number."""
        # Also to workers without environments in the group, so that one sequence of numbers serves all.
        records = self._records
        self.number = number = self.number % self._last_number + 1
        at = number % self._n_records * _RECORD
        records[at] = operation | group << _GROUP_SHIFT | self._batch
        records[at + 1] = row
        # A release store, after the record and main's writes to the batch: a worker that sees the number also
        # sees both.
        self._post_go(number)
        return number

    def use_batch(self, number: int) -> None:
        """Set the batch that subsequent commands use. No command may be in progress."""
        self._batch = number << _BATCH_SHIFT

    def command_after(self, number: int) -> tuple[int, int, int, int, int]:
        """Return the number, operation, group, row and batch of the command that follows `number`."""
        records = self._records
        number = number % self._last_number + 1
        at = number % self._n_records * _RECORD
        # Not as a slice, which is an object of its own.
        word = records[at]
        group = word >> _GROUP_SHIFT & _THREE_BITS
        return number, word & _THREE_BITS, group, records[at + 1], word >> _BATCH_SHIFT

    def done_posters(self, worker: int) -> list[Callable[[int], object]]:
        """Build functions that post a command's number or FAILED: one per group, and a last one for calls.

        They are built only once, because a worker posts in every row.
        """
        lines = [self.size.done_line(group, worker) for group in range(self.size.n_groups + 1)]
        return [self._done_poster(line) for line in lines]

    def _done_poster(self, line: int) -> Callable[[int], object]:
        post, wakeup = self.wait.poster(line), self._wakeup
        if wakeup is None:
            return post
        main_listens = self.wait.loader(self.size.listening_line)

        def post_and_wake(number: int) -> None:
            post(number)
            # Only after the post, so that no wakeup is lost; see wakeup_pipe.py.
            if main_listens():
                wakeup.wake()

        return post_and_wake

    def listen(self) -> WakeupPipe | None:
        """Make workers write a byte for each done word from now on; return the pipe, or None if missing."""
        # Never switched off again, so it is set once and not in every row.
        if self._wakeup is not None:
            self.wait.post(self.size.listening_line, 1)
        return self._wakeup

    def close(self) -> None:
        """Close the wakeup pipe; the caller owns the lines."""
        if self._wakeup is not None:
            self._wakeup.close()

    def done_words(self, group: int) -> list[int]:
        """Return each worker's done word for a group."""
        load, first = self.wait.load, self.size.done_line(group)
        return [load(line) for line in range(first, first + self.size.n_workers)]

    def put_message(self, group: int, worker: int, message: bytes) -> bool:
        """Write a message into a worker's mail box for a group or for calls, if it fits.

        Call this before posting the group's done word.
        """
        # Plain stores: the post of the done word that follows makes them visible.
        fits = len(message) <= MAIL_LINES * LINE_BYTES
        if fits:
            self._mail[group][worker][: len(message)] = message
        self._words[self._mail_word(group, worker)] = len(message) if fits else TOO_LONG
        return fits

    def take_message(self, group: int, worker: int) -> bytes | None:
        """Return the message in a worker's mail box; None if it did not fit."""
        size: int = self._words[self._mail_word(group, worker)]
        if not size:  # in most rows
            return b""
        return None if size == TOO_LONG else bytes(self._mail[group][worker][:size])

    def clear_message(self, group: int, worker: int) -> None:
        """Empty a worker's mail box of a group that has no row in progress."""
        self._words[self._mail_word(group, worker)] = 0

    def _mail_word(self, group: int, worker: int) -> int:
        return self.size.done_line(group, worker) * LINE_WORDS + _PAYLOAD

    def report_rows(self, group: int, worker: int, rows: int) -> None:
        """Report how many rows of a rollout a worker has finished."""
        # A plain store: nothing waits for it, and a post would wake main for each row.
        self._words[self._mail_word(group, worker) + 1] = rows

    def rows_reported(self, group: int) -> list[int]:
        """Return the number of rollout rows that each worker has reported for a group."""
        first = self._mail_word(group, 0) + 1
        rows: list[int] = self._words[first::LINE_WORDS][: self.size.n_workers].tolist()
        return rows
