"""Restarts of the workers of one cage: how many are left, new seeds, and what was lost.

    cage                                       Restarts                     sampler
    a wait ends with a worker's death  ----->  begin: budget, pause, seeds
    starts it again, binds it          ----->  lose: columns, row
    collect_crashes                    <-----  crashes            ------->  masks these cells

A worker that replaces a dead one repeats the unfinished command. Its environments begin with new episodes, so
the row of this command holds no step (`RowEnvironments.lose_row`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from parllel.cages.stepping.step_result import Crash
from parllel.errors import (
    RestartsUsedUpError,
    WorkerDiedError,
    WorkerTimeoutError,
    WorkerTracebackError,
)
from parllel.system.processes.restart_budget import RestartBudget

# A word of the spawn keys of restarted environments, so that no other seeds equal theirs.
_RESTARTS = 0x7E57A7


class Restarts:
    """The restarts of a cage.

    Args:
        budget: how many are allowed; several cages may share one.
        seeds: the seed of each environment of the cage. Entries are replaced at restarts.
        index: number of the cage's first environment, for messages.

    Raises:
        TypeError: if `budget` is not a RestartBudget.

    Attributes:
        count: number of restarts so far.
        last: the error that made the last one necessary.
        first_column: column of the cage's first environment in the batch.
    """

    def __init__(self, budget: RestartBudget, seeds: list[Any], index: int) -> None:
        if not isinstance(budget, RestartBudget):
            raise TypeError(f"restarts: expected a RestartBudget or None, got {budget!r}")
        self.count = 0
        self.last = ""
        self.first_column = 0
        self._budget, self._seeds, self._index = budget, seeds, index
        # The first seeds, from which those of all later processes are derived.
        self._first_seeds = list(seeds)
        self._numbers = [0] * len(seeds)
        self._crashes: list[Crash] = []

    def begin(self, error: BaseException, environments: Iterable[int]) -> None:
        """Use one restart of the budget, wait for its pause, and give the environments new seeds.

        environments: numbers of the environments of the process, from 0 in the cage.

        Raises:
            RestartsUsedUpError: if none is left; names the environments and the last errors.
        """
        numbers = list(environments)
        try:
            pause_s = self._budget.restart(error)
        except RestartsUsedUpError as used_up:
            named = ", ".join(str(self._index + i) for i in numbers)
            what = "environment" if len(numbers) == 1 else "environments"
            raise RestartsUsedUpError(f"{what} {named}: {used_up}") from error
        self.count += 1
        self.last = str(error)
        for i in numbers:
            self._numbers[i] += 1
            self._seeds[i] = restart_seed(self._first_seeds[i], self._numbers[i])
        time.sleep(pause_s)

    def lose(self, row: int | None, environments: Iterable[int]) -> None:
        """Record that environments of the cage crashed in a row, or between rows."""
        crashes = [Crash(row, self.first_column + i) for i in environments]
        # The process that repeats a row may die in it too.
        self._crashes += [crash for crash in crashes if crash not in self._crashes]

    def take(self) -> list[Crash]:
        """Return the crashes since the last call."""
        crashes, self._crashes = self._crashes, []
        return crashes


def can_restart(error: BaseException) -> bool:
    """Return whether an error is the death of a process, or a hanging one, but no exception raised in it."""
    # An exception would usually be raised again and again, and its traceback shows the mistake.
    ended = isinstance(error, (WorkerDiedError, WorkerTimeoutError))
    return ended and not isinstance(error.__cause__, WorkerTracebackError)


def restart_seed(seed: Any, number: int) -> Any:
    """Return a separate seed for each restart of an environment; None for None.

    seed: the environment's seed, an int or a SeedSequence.
    number: number of the restart, from 1.
    """
    if seed is None:
        return None
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    key = (*sequence.spawn_key, _RESTARTS, number)
    return np.random.SeedSequence(sequence.entropy, spawn_key=key)
