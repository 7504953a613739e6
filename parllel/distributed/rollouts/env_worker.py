"""One environment in a process, which is started again when it dies."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np

from parllel.cages.process_cage import ProcessCage
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.errors import RestartsUsedUpError
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import Closeable

# Of the seeds of further processes: a SeedSequence that was asked to spawn must give others.
_RESTARTS = 0x7E57A7


class EnvWorker(Closeable):
    """One environment in a process, with a budget of further processes.

    `cage` is that of the process there is now: what allocates samples takes it. A ReadySchedule steps it,
    calls `fail` when it does not answer, and `restart` after the pause.

    Args:
        env_factory, traj_info, index, check, start_method: as for `ProcessCage`.
        seed: of the first process, as for `ProcessCage`; each further one has another, derived from it.
        budget: how often the process may be started again, and how fast; of this environment alone. By
            default 10 times in 10 minutes.
        timeout_s: how long the environment may take for a step, a reset or its construction; then its process
            is killed, and counts as dead.

    Attributes:
        cage: the present ProcessCage; after `fail`, the one that was closed.
        restarts: how many processes followed the first.
        parked: why the environment is not started again; None while it is.
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
    ) -> None:
        self.index = index
        self._timeout_s = timeout_s
        self.budget = RestartBudget(10, 600.0) if budget is None else budget
        self.restarts = 0
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
        # What ProcessCage is given for a seed, so that the first process plays as a plain cage does.
        self.cage = self._make(seed=seed)

    @property
    def timeout_s(self) -> float:
        """The argument of that name."""
        # Read-only: the process that runs was started with it.
        return self._timeout_s

    def fail(self, error: Exception) -> float | None:
        """End the process; return the seconds to wait before `restart`, or None if there is to be none.

        error: why it is given up.
        """
        # What the dead or hanging environment says of its end is no news.
        with suppress(Exception):
            self.cage.close()
        try:
            return self.budget.restart(error)
        except RestartsUsedUpError as used_up:
            self.parked = RestartsUsedUpError(f"environment {self.index} is parked: {used_up}")
            return None

    def restart(self) -> None:
        """Start the next process, with a seed of its own; `cage.row_done` says when its environment is made.

        Raises:
            Exception: as the constructor of `ProcessCage`.
        """
        # First: a process that cannot be started has used up its seed as well.
        self.restarts += 1
        key = (*self._seed.spawn_key, _RESTARTS, self.restarts)
        # It returns before the environment is made, which may take long: others are not held up.
        self.cage = self._make(seed=np.random.SeedSequence(self._seed.entropy, spawn_key=key))

    def close(self) -> None:
        """End the process; may be called twice. It raises nothing: environments that died are no news."""
        with suppress(Exception):
            self.cage.close()
