"""Rows in progress of the groups of a SynchronizedProcessCage, and the rows that may start next.

    main      start: record and number of a command --> workers    both in the control lines (control.py)
              finish: steps its own share                          the workers step theirs meanwhile
              awaited: reads their done words          <-- workers    each posts the number when it is done
              finish: waits for them

A group is ready for a row once it has been reset and while none of its rows is in progress. From `start` to
the end of `finish` the row's memory belongs to the processes that step it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parllel.arrays.array import Array
from parllel.cages.cage_interface import PendingRow
from parllel.cages.stepping.rows import disown
from parllel.cages.workers.control import (
    RANDOM,
    RESET_ALL,
    RESET_ENDED,
    RESET_SOME,
    ROLLOUT,
    STEP,
    STEP_OR_RESET,
)
from parllel.cages.workers.worker_pool import POLL_S, WorkerPool
from parllel.system.processes.several import Handle

RESETS = (RESET_ALL, RESET_ENDED, RESET_SOME)
_WORDS = ("step", "random step", "reset", "reset", "call", "rollout", "reset", "step")


class PendingCommand(PendingRow):
    """The workers' shares of one command."""

    __slots__ = ("_group", "_number", "_pool")

    def __init__(self, pool: WorkerPool, group: int, number: int) -> None:
        self._pool, self._group, self._number = pool, group, number

    def done(self) -> bool:
        """Return whether all workers have finished their shares, or one has failed or died."""
        return self._pool.done(self._group, self._number)

    def handles(self) -> Sequence[Handle]:
        """Return handles that become ready when a worker finishes a command of any group, or ends."""
        return self._pool.handles(self._group, self._number)


class GroupRows:
    """Starts and finishes rows, separately for each group.

    Attributes:
        T: rows per batch of the bound buffer; 0 if there is none.
        n_batches: number of batches in the bound buffer.
        ready: for each group, the number of rows that may be stepped now; 0 before a reset and
            while an operation is in progress.
        begun: whether each group has ever been reset.
        to_collect: whether a row has been started since this was last set to False.
    """

    def __init__(self, pool: WorkerPool, n_groups: int) -> None:
        self.T = self.n_batches = 0
        self.ready = dict.fromkeys(range(n_groups), 0)
        self.begun = [False] * n_groups
        self.to_collect = False
        self._pool = pool
        self._control = pool.control
        self._reward: Array | None = None
        self._column = 0  # the cage's first
        self._numbers = dict.fromkeys(range(n_groups), 0)  # command in progress, 0 for none
        self._doing = [(STEP, 0)] * n_groups
        self._due = [False] * n_groups  # whether main must still step its own share
        # Number and arguments of the call of a decorrelation in progress.
        self._decorrelation: tuple[int, tuple[Any, ...]] | None = None
        # Looked up once: a whole row may take only a few microseconds.
        size = pool.control.size
        self._first_lines = [size.done_line(group) for group in range(n_groups)]
        self._n_workers = size.n_workers
        self._command = pool.control.command
        # One for each group. Most rows end in this time: only longer waits check whether the workers live.
        self._wait_each = [
            pool.control.wait.each_waiter(line, self._n_workers, POLL_S)
            for line in self._first_lines
        ]

    def bind(self, reward: Array, column: int, batch: int, n_batches: int) -> None:
        """Bind to a buffer. `reward` is kept to write NaN into rows that a worker did not finish."""
        self.T, self._reward, self._column = len(reward), reward, column
        self.n_batches = n_batches
        self._control.use_batch(batch)
        self.ready = {group: self.T if begun else 0 for group, begun in enumerate(self.begun)}

    def unbind(self) -> None:
        """Unbind the buffer; no rows can start until the next `bind`."""
        self.T = self.n_batches = 0
        self.ready = dict.fromkeys(self.ready, 0)
        # Every buffer has batch 0. After a failed `bind` a worker's buffer may lack the current one.
        self._control.use_batch(0)

    def use_batch(self, number: int) -> None:
        """Set the batch that subsequent rows use. The workers receive it with the next command."""
        self._control.use_batch(number)
        # Main reads no commands, so its own share is switched here.
        if self._pool.main is not None:
            self._pool.main.use_batch(number)

    def reset_elsewhere(self) -> None:
        """Mark all groups as reset, after loading states with episodes in progress."""
        self.begun = [True] * len(self.begun)
        self.ready = dict.fromkeys(self.ready, self.T)

    def start(self, operation: int, t: int, group: int) -> None:
        """Start a row in all workers; for a rollout, `t` is the number of rows."""
        self._doing[group] = operation, t
        self._due[group] = self.to_collect = True
        self.ready[group] = 0  # refuses another start: the group's rows belong to the workers now
        self._numbers[group] = self._command(operation, group, t)

    def finish(self, group: int) -> bool:
        """Step the main process's share and wait for the workers. Return False if nothing was started."""
        number = self._numbers.get(group)
        if not number:
            return False
        # Before the wait, while the workers step. Not again if `finish` is repeated after Ctrl-C ended the
        # wait: main's environments would be a step ahead of the others.
        if self._due[group]:
            self._due[group] = False
            if self._pool.main is not None:
                try:
                    self._pool.take_part(*self._doing[group], group, number)
                except BaseException:  # Ctrl-C too, which ends the cage here
                    self._disown(group)
                    raise
        if self._wait_each[group](number) != self._n_workers:
            self._await_others(group, number)
        # Only now: if Ctrl-C ends the wait, the row must stay in progress.
        self._numbers[group] = 0
        self.begun[group] = True
        self.ready[group] = self.T
        return True

    def _await_others(self, group: int, number: int) -> None:
        try:
            self._pool.await_done(group, number, f"during {self.in_progress(group)}")
        except Exception:  # not KeyboardInterrupt, after which the row can still be finished
            self._disown(group)
            raise

    def bound_step(self, group: int, otherwise: Callable[[int], None]) -> Callable[[int], None]:
        """Return a function that starts and finishes a step of a group in the current batch.

        otherwise: called instead for a row that cannot be started now.
        """
        # What `start` and `finish` do, in the same order, in a closure whose names cost less than attributes.
        pool, command = self._pool, self._command
        wait_each, n_workers = self._wait_each[group], self._n_workers
        doing, due, numbers = self._doing, self._due, self._numbers
        step_own = None if pool.main is None else pool.main.bound_step(group)

        def step_row(t: int) -> None:
            if not 0 <= t < self.ready[group] or pool.broken is not None:
                otherwise(t)
                return
            doing[group] = STEP, t
            due[group] = self.to_collect = True
            self.ready[group] = 0
            numbers[group] = number = command(STEP, group, t)
            due[group] = False
            if step_own is not None:
                try:
                    step_own(t)
                except BaseException as error:
                    pool.end_part(error, group, number)
                    self._disown(group)
                    raise
            if wait_each(number) != n_workers:
                self._await_others(group, number)
            numbers[group] = 0
            self.ready[group] = self.T

        return step_row

    def started(self, group: int) -> bool:
        """Return whether a group has a row in progress; False for an unknown group."""
        return bool(self._numbers.get(group))

    @property
    def busy(self) -> bool:
        """Whether any group has a row in progress."""
        return any(self._numbers.values())

    def started_commands(self) -> list[tuple[int, int]]:
        """Return the groups with rows in progress, and the numbers of these commands."""
        return [(group, number) for group, number in self._numbers.items() if number]

    def doing(self, group: int) -> tuple[int, int]:
        """Return the operation and the row of a group's last command."""
        return self._doing[group]

    def awaited(self, group: int) -> PendingCommand:
        """Return a group's row in progress, or the decorrelation in progress of all groups."""
        number = self._numbers[group]
        if not number and self._decorrelation is not None:
            return PendingCommand(self._pool, len(self.begun), self._decorrelation[0])
        return PendingCommand(self._pool, group, number)

    @property
    def decorrelates(self) -> bool:
        """Whether a decorrelation is in progress."""
        return self._decorrelation is not None

    def start_decorrelation(self, counts: Sequence[int], t: int) -> None:
        """Start random steps in all processes."""
        # Python ints, as numpy ints take far more bytes when pickled.
        args = [int(count) for count in counts], t
        self._decorrelation = self._pool.begin_call("decorrelate", args), args
        self.ready = dict.fromkeys(self.ready, 0)

    def finish_decorrelation(self) -> None:
        """Take the random steps of the main process, then wait for the workers."""
        assert self._decorrelation is not None
        number, args = self._decorrelation
        # Cleared before the wait: an interruption of it ends the cage, so nothing is left to finish.
        self._decorrelation = None
        # All groups: each was reset before.
        self.ready = dict.fromkeys(self.ready, self.T)
        self._pool.end_call(number, "decorrelate", args)

    def takes_batch(self, number: int) -> bool:
        """Return whether the batch exists and no group has anything in progress.

        All groups must be idle, because a worker switches them together.
        """
        idle = self._decorrelation is None and not any(self._numbers.values())
        return 0 <= number < self.n_batches and idle

    def in_progress(self, group: int) -> str | None:
        """Describe a group's operation in progress; None if it is idle."""
        if self._decorrelation is not None:
            return "decorrelation"
        if not self._numbers[group]:
            return None
        operation, t = self._doing[group]
        what = operation_name(operation)
        return f"{what} of {t} rows" if operation == ROLLOUT else f"{what} at row {t}"

    def _disown(self, group: int) -> None:
        """Write NaN where workers ended without writing rewards: the old values are another row's."""
        operation, t = self._doing[group]
        if operation in (STEP, RANDOM, STEP_OR_RESET) and self._reward is not None:
            # Set for this row by `await_done`, `take_part` or `_fail`, immediately before they raised.
            for w in self._pool.unfinished:
                share, first = self._pool.shares[w][group], self._column
                disown(self._reward, t, slice(first + share.start, first + share.stop))


def operation_name(operation: int) -> str:
    """Return the name of an operation, for messages."""
    return _WORDS[operation]
