"""The rows that the groups of a SynchronizedProcessCage are doing, and those that they may do next.

    main      start: record and number of a command --> workers    both in the control lines (control.py)
              finish: steps its own share                          the workers step theirs meanwhile
              awaited: looks at their done words       <-- workers    each posts the number when it is done
              finish: waits for them

A group is ready for rows of the buffer once it was reset, and not while one of its rows is in progress: its
memory belongs to the processes from `start` to the end of `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.arrays.array import Array
from parllel.cages.cage_interface import PendingRow
from parllel.cages.stepping.rows import disown
from parllel.cages.workers.control import RANDOM, RESET_ALL, RESET_ENDED, ROLLOUT, STEP
from parllel.cages.workers.worker_pool import POLL_S, WorkerPool
from parllel.system.processes.several import Handle

RESETS = (RESET_ALL, RESET_ENDED)
_WORDS = ("step", "random step", "reset", "reset", "call", "rollout")


class PendingCommand(PendingRow):
    """The workers' shares of one command."""

    __slots__ = ("_group", "_number", "_pool")

    def __init__(self, pool: WorkerPool, group: int, number: int) -> None:
        self._pool, self._group, self._number = pool, group, number

    def done(self) -> bool:
        """Return whether all workers have done theirs, or one has failed or died."""
        return self._pool.done(self._group, self._number)

    def handles(self) -> Sequence[Handle]:
        """Return what is ready when a worker has finished a command of any group, or has ended."""
        return self._pool.handles(self._group, self._number)


class GroupRows:
    """Start and finish rows, those of each group apart.

    Attributes:
        T: rows of each batch of the buffer that is bound, 0 if there is none.
        n_batches: how many batches it has.
        ready: for each group how many rows may be stepped now; 0 before a reset, and while anything is
            in progress.
        begun: whether each group was ever reset.
        to_collect: whether anything was started since this was last set to False.
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
        self._numbers = dict.fromkeys(range(n_groups), 0)  # of the command in progress, 0 for none
        self._doing = [(STEP, 0)] * n_groups
        self._due = [False] * n_groups  # whether main has yet to step its own share
        # Of a decorrelation in progress: number of the call, its arguments.
        self._decorrelation: tuple[int, tuple[Any, ...]] | None = None
        # What each row needs, looked up once: a row may take no longer than some microseconds.
        size = pool.control.size
        self._first_lines = [size.done_line(group) for group in range(n_groups)]
        self._n_workers = size.n_workers
        self._command = pool.control.command
        self._wait_each = pool.control.wait.wait_each

    def bind(self, reward: Array, column: int, batch: int, n_batches: int) -> None:
        """Take up a buffer, whose reward becomes NaN in rows that a worker did not finish."""
        self.T, self._reward, self._column = len(reward), reward, column
        self.n_batches = n_batches
        self._control.use_batch(batch)
        self.ready = {group: self.T if begun else 0 for group, begun in enumerate(self.begun)}

    def unbind(self) -> None:
        """Do no rows until the next `bind`."""
        self.T = self.n_batches = 0
        self.ready = dict.fromkeys(self.ready, 0)
        # Every buffer has it: after a `bind` that failed a worker may have one without the batch of before.
        self._control.use_batch(0)

    def use_batch(self, number: int) -> None:
        """Let further rows be those of a batch, which comes with the next command."""
        self._control.use_batch(number)
        # Main reads no commands, so its own share changes here; the workers when they read the next one.
        if self._pool.main is not None:
            self._pool.main.use_batch(number)

    def reset_elsewhere(self) -> None:
        """Assume that all groups have episodes to go on with, as after loading states."""
        self.begun = [True] * len(self.begun)
        self.ready = dict.fromkeys(self.ready, self.T)

    def start(self, operation: int, t: int, group: int) -> None:
        """Let all workers do a row; `t` is the number of rows in a rollout."""
        self._doing[group] = operation, t
        self._due[group] = self.to_collect = True
        self.ready[group] = 0  # its rows are the workers' from here on: another start is refused
        self._numbers[group] = self._command(operation, group, t)

    def finish(self, group: int) -> bool:
        """Do main's own share and wait for the workers; False if nothing was started."""
        number = self._numbers.get(group)
        if not number:
            return False
        # Before the wait, as the workers step meanwhile. Not again if Ctrl-C ended the wait and `finish` is
        # repeated: its environments would be a step ahead of the others.
        if self._due[group]:
            self._due[group] = False
            if self._pool.main is not None:
                self._pool.take_part(*self._doing[group], group, number)
        # Most rows end here: whether the workers live is looked at only if it takes longer.
        found = self._wait_each(self._first_lines[group], self._n_workers, number, POLL_S)
        if found != self._n_workers:
            try:
                self._pool.await_done(group, number, f"during {self.in_progress(group)}")
            except Exception:  # not KeyboardInterrupt: the row goes on, and can be finished
                self._disown(group)
                raise
        # Not before: if Ctrl-C ends the wait, `finish` finds the row still in progress.
        self._numbers[group] = 0
        self.begun[group] = True
        self.ready[group] = self.T
        return True

    def started(self, group: int) -> bool:
        """Return whether a group has a row in progress; False for a group that is not there."""
        return bool(self._numbers.get(group))

    def awaited(self, group: int) -> PendingCommand:
        """Return what a group has in progress, or all of them: a decorrelation."""
        number = self._numbers[group]
        if not number and self._decorrelation is not None:
            return PendingCommand(self._pool, len(self.begun), self._decorrelation[0])
        return PendingCommand(self._pool, group, number)

    @property
    def decorrelates(self) -> bool:
        """Whether a decorrelation is in progress."""
        return self._decorrelation is not None

    def start_decorrelation(self, counts: Sequence[int], t: int) -> None:
        """Let all processes take random steps."""
        # Python's ints: numpy's are much longer when pickled.
        args = [int(count) for count in counts], t
        self._decorrelation = self._pool.begin_call("decorrelate", args), args
        self.ready = dict.fromkeys(self.ready, 0)

    def finish_decorrelation(self) -> None:
        """Do main's own share and wait for the workers."""
        assert self._decorrelation is not None
        number, args = self._decorrelation
        # Before the wait: whatever interrupts that ends the cage, and nothing is left to finish.
        self._decorrelation = None
        # Of every group, as each was reset before.
        self.ready = dict.fromkeys(self.ready, self.T)
        self._pool.end_call(number, "decorrelate", args)

    def takes_batch(self, number: int) -> bool:
        """Return whether there is such a batch, and nothing is in progress.

        In all groups: a worker changes once for all of its groups.
        """
        idle = self._decorrelation is None and not any(self._numbers.values())
        return 0 <= number < self.n_batches and idle

    def in_progress(self, group: int) -> str | None:
        """Return what a group is doing, in words; None if it is idle."""
        if self._decorrelation is not None:
            return "decorrelation"
        if not self._numbers[group]:
            return None
        operation, t = self._doing[group]
        what = operation_name(operation)
        return f"{what} of {t} rows" if operation == ROLLOUT else f"{what} at row {t}"

    def _disown(self, group: int) -> None:
        """Claim no rewards of workers that ended without a word: those in the row are of an earlier one."""
        operation, t = self._doing[group]
        if operation in (STEP, RANDOM) and self._reward is not None:
            for w in self._pool.unfinished:
                share, first = self._pool.shares[w][group], self._column
                disown(self._reward, t, slice(first + share.start, first + share.stop))


def operation_name(operation: int) -> str:
    """Return what messages call an operation."""
    return _WORDS[operation]
