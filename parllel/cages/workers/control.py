"""The words between main and workers of a SynchronizedProcessCage: numbers of commands, nothing else.

    line              who writes   word                                     payload
    0                 main         go: number of the last command           records of the last commands
    1 + g W + w       worker w     done: number of the last command of      -
                                   group g that it finished; FAILED in
                                   all of them if its process ends
    1 + (G + 1) W     main         listening: 1 once it wants a byte for     -
                                   each done word, see wakeup_pipe.py
    (g = n_groups = G for calls, which concern the whole cage; what is asked goes over pipes)

The payload of a done line for calls is the length of the answer in the worker's mail box, which follows the
lines, or 0 for one that is too long for it and goes over the pipe. In a rollout the payload of a done line is
the number of rows that worker w has finished; main looks at it when it has waited for long.

    main:    record of command n; go = n                     worker: go > handled; record of handled + 1;
             waits for W words of a group to be n                    does it; done = handled + 1

record of a command   word 0, from its lowest bit:  operation, 3 bits | group, 3 bits | batch, 25 bits
                      word 1:                       row, relative to that batch

The batch is the number of the one that rows belong to, in a buffer that holds several. It comes with each
command, so nothing else has to be sent when it changes: a worker that reads another number than before
changes to it first. Main changes it only while no command is in progress, so all that follow agree on it.

A record is only overwritten `n_groups + 2` commands later. By then each worker has read it: of any group,
and of calls, one command at a time is in progress, and every worker takes commands in their order.
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
STEP, RANDOM, RESET_ALL, RESET_ENDED, CALL, ROLLOUT = range(6)
# What stands for the row in the record of a call: those of every batch need no message.
BY_PIPE, COLLECT_ALL, COLLECT_TRUNCATED, COLLECT_AT_ONCE = range(4)
_PAYLOAD = 2  # words of a line before its payload
_RECORD = 2  # words: command with its group and batch, row
MAX_GROUPS = (LINE_WORDS - _PAYLOAD) // _RECORD - 2
_GROUP_SHIFT, _BATCH_SHIFT = 3, 6
_THREE_BITS = 7
MAX_BATCHES = 2 ** (31 - _BATCH_SHIFT)
MAIL_LINES = 256  # 16 KiB for each worker


class ControlSize:
    """How many lines there are and which is whose; picklable."""

    def __init__(self, n_workers: int, n_groups: int) -> None:
        if n_groups > MAX_GROUPS:
            raise ValueError(f"n_groups: expected at most {MAX_GROUPS}, got {n_groups}")
        self.n_workers, self.n_groups = n_workers, n_groups
        # One for each group and one for calls may be unread at once; one more is being written.
        self.n_records = n_groups + 2
        # Numbers start again below the largest int32, where a record would follow its predecessor anyway.
        self.last_number = (2**31 - 1) // self.n_records * self.n_records

    @property
    def n_lines(self) -> int:
        """Return how many lines there are in all."""
        return self.listening_line + 1

    @property
    def listening_line(self) -> int:
        """Return the line in which main asks for bytes."""
        return 1 + (self.n_groups + 1) * self.n_workers

    def done_line(self, group: int, worker: int = 0) -> int:
        """Return the line that a worker writes when it has finished a command of a group."""
        return 1 + group * self.n_workers + worker

    def allocate(self, kind: str) -> tuple[Array, SleepSlots | None]:
        """Return the lines, and what waits of some kinds need besides, to hand to the workers."""
        # One slot more than workers, as main sleeps too.
        sleep_slots = SleepSlots(self.n_lines, self.n_workers + 1) if kind == "semaphore" else None
        n_lines = self.n_lines + self.n_workers * MAIL_LINES
        return SharedMemoryArray((n_lines, LINE_WORDS), np.int32), sleep_slots


class Control:
    """One process's end of the words.

    Args:
        size: of which cage.
        lines: from `size.allocate`, as are `sleep_slots`.
        kind, spin_us: of the wait.
        wakeup: the pipe of the cage, closed with this; None where there can be none.
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
        # A memoryview loads and stores an aligned int by one instruction, and quicker than numpy.
        self._words: Any = memory.data.cast("B").cast("i")
        mail = memory[size.n_lines :].reshape(size.n_workers, -1)
        self._mail: list[Any] = [box.data.cast("B") for box in mail]
        self._records: Any = self._words[_PAYLOAD:LINE_WORDS]
        self.number = 0
        self._batch = 0  # shifted to its place in a record
        self._post_go = self.wait.poster(GO)
        self._wakeup = wakeup

    def command(self, operation: int, group: int, row: int) -> int:
        """Tell all workers what to do in the current batch, and return the number of the command."""
        # All of them, also those without environments in the group: numbers then need no count per worker.
        size, records = self.size, self._records
        self.number = number = self.number % size.last_number + 1
        at = number % size.n_records * _RECORD
        records[at] = operation | group << _GROUP_SHIFT | self._batch
        records[at + 1] = row
        # After the record, and whatever main wrote to the batch: a worker reads both once it sees the number.
        self._post_go(number)
        return number

    def use_batch(self, number: int) -> None:
        """Let rows of further commands belong to another batch; no command may be in progress."""
        self._batch = number << _BATCH_SHIFT

    def command_after(self, number: int) -> tuple[int, int, int, int, int]:
        """Return the number of the command after this one, with its operation, group, row and batch."""
        number = number % self.size.last_number + 1
        at = number % self.size.n_records * _RECORD
        word, row = self._records[at : at + _RECORD]
        group = word >> _GROUP_SHIFT & _THREE_BITS
        return number, word & _THREE_BITS, group, row, word >> _BATCH_SHIFT

    def done_posters(self, worker: int) -> list[Callable[[int], object]]:
        """Return for each group, and last for calls, what posts the number of a command, or FAILED.

        Made once, as a worker posts in each row.
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
            # After the post, see wakeup_pipe.py.
            if main_listens():
                wakeup.wake()

        return post_and_wake

    def listen(self) -> WakeupPipe | None:
        """Have workers write a byte for each done word from now on; return the pipe, None if it has none."""
        # For good: a worker that looks in every row need not be told again.
        if self._wakeup is not None:
            self.wait.post(self.size.listening_line, 1)
        return self._wakeup

    def close(self) -> None:
        """Close the wakeup pipe; the lines are the caller's."""
        if self._wakeup is not None:
            self._wakeup.close()

    def done_words(self, group: int) -> list[int]:
        """Return the done word of each worker, of a group."""
        load, first = self.wait.load, self.size.done_line(group)
        return [load(line) for line in range(first, first + self.size.n_workers)]

    def put_answer(self, worker: int, message: bytes) -> bool:
        """Leave the answer to a call where main finds it, if there is room; call before the post."""
        # The post of the done word makes both visible, as it does with all that was written before it.
        fits = len(message) <= MAIL_LINES * LINE_BYTES
        if fits:
            self._mail[worker][: len(message)] = message
        self._words[self._mail_word(worker)] = len(message) if fits else 0
        return fits

    def take_answer(self, worker: int) -> bytes:
        """Return the answer of a worker, empty if it goes over the pipe."""
        size = self._words[self._mail_word(worker)]
        # Two processes write this word, never at once: the worker until it posts, main from then on.
        self._words[self._mail_word(worker)] = 0
        return bytes(self._mail[worker][:size])

    def _mail_word(self, worker: int) -> int:
        return self.size.done_line(self.size.n_groups, worker) * LINE_WORDS + _PAYLOAD

    def report_rows(self, group: int, worker: int, rows: int) -> None:
        """Say how many rows of a rollout a worker has finished."""
        # A store without a post: nothing waits for it, and a post would wake main for each row.
        self._words[self.size.done_line(group, worker) * LINE_WORDS + _PAYLOAD] = rows

    def rows_reported(self, group: int) -> list[int]:
        """Return how many rows of its rollout each worker says that it has finished, of a group."""
        first = self.size.done_line(group) * LINE_WORDS + _PAYLOAD
        rows: list[int] = self._words[first::LINE_WORDS][: self.size.n_workers].tolist()
        return rows
