"""One environment in a process that is restarted when it dies."""

# schedule's thread   restart --> starts a process;  fail, close --> end it
# other threads       restarts, parked <-- read without a lock, for `RolloutWorker.status`
# `restart` is called only after `fail` or `retire`, so there is at most one process at a time.

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial

import numpy as np

from parllel.cages.process_cage import ProcessCage
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.cages.workers.restarts import restart_seed
from parllel.distributed.rollouts.arguments import check_count
from parllel.errors import RestartsUsedUpError
from parllel.system.processes.memory import own_memory
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import Closeable


class EnvWorker(Closeable):
    """One environment in a process, with a budget of restarts.

    `cage` is the cage of the current process; pass it to functions that allocate samples. An
    AsynchronousSchedule steps it, calls `fail` when it does not answer, and `restart` after the pause.

    An environment that leaks memory, or becomes slower with time, can be replaced before it fails: with
    `most_steps` or `most_memory`, its process is closed at the end of the first episode in which the limit
    was reached, and another one is started. No step is lost, and the budget is not used.

    Args:
        env_factory, traj_info, index, check, start_method: arguments of `ProcessCage`.
        seed: seed of the first process, as for `ProcessCage`. Restarted processes have seeds derived from it.
        budget: maximum number of restarts of this environment, and their pace. Default: 10 in 10
            minutes.
        timeout_s: time limit in seconds for a step, a reset or the construction. A process that
            exceeds it is killed and counts as dead.
        most_steps: number of steps after which a process is replaced; None: never.
        most_memory: bytes of memory of its own (`own_memory`) at which a process is replaced; None: at none.

    Raises:
        TypeError, ValueError: if a limit is not a whole number above 0.
        OSError: for `most_memory` on other systems than Linux.

    Attributes:
        cage: the current ProcessCage. After `fail`, the closed ProcessCage.
        restarts: number of processes after the first.
        replaced: number of processes that reached a limit.
        parked: the error that used up the last restart. None while restarts are left.
    """

    def __init__(
        self,
        env_factory: EnvFactory,
        *,
        seed: int | np.random.SeedSequence,
        budget: RestartBudget | None = None,
        timeout_s: float = 60.0,
        index: int = 0,
        traj_info: TrajInfoFactory = TrajInfo,
        check: str = "first_episode",
        start_method: str | None = None,
        most_steps: int | None = None,
        most_memory: int | None = None,
    ) -> None:
        for name, limit in (("most_steps", most_steps), ("most_memory", most_memory)):
            if limit is not None:
                check_count(name, limit)
        if most_memory is not None:
            own_memory()  # raises where it cannot be measured
        self._most_steps, self._most_memory = most_steps, most_memory
        self._steps = 0  # of the current process
        self._retires = False
        self.index = index
        self._timeout_s = timeout_s
        self.budget = RestartBudget(10, 600.0) if budget is None else budget
        self.restarts = self.replaced = 0
        self.parked: RestartsUsedUpError | None = None
        self._seed = (
            seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        )
        self._make: partial[ProcessCage] = partial(
            ProcessCage,
            env_factory,
            traj_info=traj_info,
            index=index,
            check=check,
            start_method=start_method,
            timeout_s=timeout_s,
        )
        # The seed as it was given, so that the first process plays the same episodes as a plain cage.
        self.cage = self._make(seed=seed)

    @property
    def timeout_s(self) -> float:
        """Time limit of a step, a reset or the construction, in seconds."""
        # Read-only, because the running process was started with it.
        return self._timeout_s

    def fail(self, error: Exception) -> float | None:
        """End the process. Returns the pause in seconds before `restart`, or None if restarts are used up.

        error: the reason.
        """
        # Errors on closing a dead or hanging process add nothing to `error`.
        with suppress(Exception):
            self.cage.close()
        try:
            # After closing: a parked environment must not leave a process behind either.
            return self.budget.restart(error)
        except RestartsUsedUpError as used_up:
            self.parked = RestartsUsedUpError(f"environment {self.index} is parked: {used_up}")
            return None

    def count_step(self, *, ended: bool) -> bool:
        """Count a step. Returns whether the process should be replaced now.

        ended: whether it was the last step of an episode.
        """
        self._steps += 1
        if not ended:
            return False
        if self._most_steps is not None and self._steps >= self._most_steps:
            return True
        if self._most_memory is None:
            return False
        try:
            return own_memory(self.cage.pid) >= self._most_memory
        except ProcessLookupError:
            return False  # it has died, which the next step finds out

    def retire(self) -> None:
        """Ask the process to close its environment and end; `retired` becomes True then."""
        self._retires = True
        self.cage.start_close()

    @property
    def retired(self) -> bool:
        """Whether the process has ended after `retire`. A RuntimeWarning reports an error of closing."""
        if not self._retires or not self.cage.died:
            return False
        try:
            self.cage.close()
        except Exception as error:
            warnings.warn(
                f"environment {self.index}: closing before a restart failed: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._retires = False
        self.replaced += 1
        return True

    def restart(self) -> None:
        """Start the next process with a new seed. `cage.row_done` shows when it is ready.

        Raises:
            Exception: any error of the constructor of `ProcessCage`.
        """
        # Counted first: a process that fails to start has used up its seed, too.
        self.restarts += 1
        self._steps, self._retires = 0, False
        # Returns before the environment is constructed, which may take long, so others are not held up.
        # If it raises, `cage` stays the closed one, which `fail` can close again.
        self.cage = self._make(seed=restart_seed(self._seed, self.restarts))

    def close(self) -> None:
        """End the process. Idempotent. Never raises, even if the process has died."""
        with suppress(Exception):
            self.cage.close()
