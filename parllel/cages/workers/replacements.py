"""Replacement of dead workers of a SynchronizedProcessCage, one at a time, while the others go on.

    main                                               worker that replaces w
    a wait ends with w's death
    Restarts.begin: budget, pause, new seeds
    start, with the number of the last command that w
    finished, and the groups with episodes     ------> makes its environments
    await, check                               <------ first words: the spaces
    bind                                       ------> binds; answers over the pipe
    an unfinished call, again                  ------> reads it when it reaches the command
                                                       repeats what w did not finish
    take_losses: done word = the number        <------ done word = LOST after the first row of such a group

Nobody but main writes the control lines of w between the two workers. The first row of each group is one
without a step, whether w had begun it or not. So main learns which row it was from the worker's word, and the
rows of cages without deaths cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.conversation import FIRST_WORDS, Conversation
from parllel.cages.spaces import Spaces, check_alike
from parllel.cages.workers.bound_places import check_places
from parllel.cages.workers.control import FAILED, LOST
from parllel.cages.workers.group_rows import RESETS, GroupRows
from parllel.cages.workers.restarts import Restarts, can_restart
from parllel.cages.workers.worker_pool import WorkerPool

# Number of a worker, the command after which it begins, and the groups whose episodes were lost.
StartWorker = Callable[[int, int, Sequence[int]], Conversation]
# Calls that another worker can repeat. All others end the cage, as they may have caused the death.
_REPEATED = ("collect", "states", "decorrelate")


class Replacements:
    """Replaces dead workers of a pool.

    Args:
        pool, rows, needs_reset: of the cage.
        restarts: the budget and the seeds.
        start: starts a worker.

    Attributes:
        bound: arguments of the last "bind"; None before.
        spaces: of the environments, once known.
    """

    def __init__(
        self,
        pool: WorkerPool,
        rows: GroupRows,
        needs_reset: NDArray[np.bool_],
        restarts: Restarts,
        start: StartWorker,
    ) -> None:
        self.bound: tuple[Any, ...] | None = None
        self.spaces: Spaces | None = None
        self._pool, self._rows, self._needs_reset = pool, rows, needs_reset
        self._restarts, self._start = restarts, start
        # Workers and groups whose loss was recorded when they died, between rows.
        self._recorded: set[tuple[int, int]] = set()

    def recover(self, errors: Mapping[int, BaseException]) -> bool:
        """Replace workers that died or hang; return False if these errors cannot be recovered from.

        errors: why each worker failed, by its number.

        Raises:
            RestartsUsedUpError: if the budget is used up.
            Exception: an error of an environment that was made again.
        """
        pool = self._pool
        call = pool.call_in_progress
        if self.spaces is None or not all(can_restart(error) for error in errors.values()):
            return False
        if call is not None and call[1] not in _REPEATED:
            return False
        for w in errors:
            # It has reported a failure, but not which: its words no longer tell what it has finished.
            if FAILED in [pool.done_word(group, w) for group in range(len(self._rows.begun) + 1)]:
                return False
        for w, error in errors.items():
            self._replace(w, error)
        return True

    def _replace(self, w: int, error: BaseException) -> None:
        pool, begun = self._pool, self._rows.begun
        groups = [group for group, has_begun in enumerate(begun) if has_begun]
        environments = [i for share in pool.shares[w] for i in range(share.start, share.stop)]
        if not self._rows.busy and (pool.call_in_progress or ("", "collect"))[1] != "decorrelate":
            self._lose_between_rows(w, groups)
        while True:
            self._restarts.begin(error, environments)
            # A hanging one is killed here.
            pool.workers[w].break_off(error)
            pool.workers[w].close(forgive=True)
            try:
                pool.set_worker(w, self._start(w, self._last_finished(w), groups))
                self._set_up(w)
                return
            except Exception as again:
                pool.workers[w].break_off(again)
                if not can_restart(again):
                    raise
                error = again

    def _last_finished(self, w: int) -> int:
        """Return the number of the last command that a worker has finished."""
        pool = self._pool
        last, started = pool.control.size.last_number, self._rows.started_commands()
        if pool.call_in_progress is not None:
            started.append((len(self._rows.begun), pool.call_in_progress[0]))
        # Workers take commands in order, so what is before the oldest unfinished one is finished.
        ages = [
            (pool.control.number - number) % last
            for group, number in started
            if pool.done_word(group, w) != number
        ]
        return (pool.control.number - max(ages) - 2) % last + 1 if ages else pool.control.number

    def _set_up(self, w: int) -> None:
        worker, pool = self._pool.workers[w], self._pool
        index, spaces = worker.answer(FIRST_WORDS, "while its environments were made again")
        assert self.spaces is not None
        check_alike(spaces, self.spaces, index, index)
        worker.child.name = f"{worker.child.name[:-1]} of {self.spaces.name})"
        if self.bound is None:
            worker.call("nothing")
        else:
            bound = worker.call("bind", *self.bound)
            _, action, fields, column = self.bound
            check_places([bound], [worker.child.name], [pool.shares[w]], column, action, fields)
        number, op, args = pool.call_in_progress or (0, "", None)
        # Without arguments, the command says it all, and the worker reads it by itself.
        if args is not None and pool.done_word(len(self._rows.begun), w) != number:
            worker.ask(op, *args, number=number)

    def _lose_between_rows(self, w: int, groups: Sequence[int]) -> None:
        for group in groups:
            share = self._pool.shares[w][group]
            # The workers read these flags in rows only.
            self._needs_reset[share] = True
            self._restarts.lose(None, range(share.start, share.stop))
            self._recorded.add((w, group))

    def take_losses(self, group: int, number: int) -> None:
        """Record the rows without a step of a group, and mark them as finished."""
        pool = self._pool
        operation, t = self._rows.doing(group)
        for w, word in enumerate(pool.control.done_words(group)):
            if word != LOST:
                continue
            recorded = (w, group) in self._recorded
            self._recorded.discard((w, group))
            if operation not in RESETS or not recorded:
                share = pool.shares[w][group]
                row = None if operation in RESETS else t
                self._restarts.lose(row, range(share.start, share.stop))
            # In place of the worker, which writes the line again only after the next command.
            pool.control.wait.post(pool.control.size.done_line(group, w), number)
