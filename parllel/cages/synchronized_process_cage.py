"""A cage of many environments over worker processes that start on one shared word.

    this process                    memory that all share                worker w
    agent: action[t]            --> batch, columns of w              --> read by step
    start_row: record, go = n   --> control lines, see control.py    --> may begin
    finish_row: steps its own   --> batch, columns of this process
    finish_row: waits           <-- batch, rows t and t + 1; done = n <- written by step and reset
    needs_reset                 <-- a flag for each column           <-- before done = n
    calls, long answers         <-> one pipe for each worker         <-> see synchronized_worker.py

From `start_row` to the end of `finish_row` a group's rows belong to the processes that step it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.buffers.batches import batch_number, count_batches
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays
from parllel.cages.argument_checks import (
    check_batch,
    check_counts,
    check_group,
    check_pool_options,
    check_row,
    check_states,
)
from parllel.cages.cage_interface import PendingRow
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.environments_for import factories_by_column
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.cages.workers.bound_places import check_places
from parllel.cages.workers.control import RANDOM, RESET_ALL, RESET_ENDED, ROLLOUT, STEP
from parllel.cages.workers.group_rows import RESETS, GroupRows, operation_name
from parllel.cages.workers.remote_cage import RemoteCage, by_column
from parllel.cages.workers.start_workers import PoolSettings, divide, environments_of, start_pool
from parllel.cages.workers.worker_policy import MakePolicy
from parllel.errors import WrongStateError, first_of
from parllel.types import State


class SynchronizedProcessCage(RemoteCage):
    """Many environments over worker processes; to start a row is to write one number.

    Workers own columns of the batch, which all processes share, and wait for the number of the next command:
    they spin for a while and then sleep. The main process can step some environments itself instead of only
    waiting, which pays where cores are few.

    Args:
        env_factories, n, traj_info, reset_automatically, seeds, index, check: as for `VectorizedCage`;
            factories travel by cloudpickle. Each environment does the same whatever the number of workers.
            A VectorEnvFactory makes one native vector environment for each group of each process; whether
            their samples depend on the number of workers is up to them, see `VectorEnvFactory`.
        n_workers: processes besides this one.
        n_groups: parts of the columns that are stepped apart, 1 to 5; two for an AlternatingSampler.
        participate: let this process step environments too, in `finish_row`. What they do wrong (a crash, a
            hang) happens to this process then.
        n_main: how many; default an equal share. Needs `participate`.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: how long workers may take for one answer, or one row of a rollout, their start included;
            then they are ended and WorkerTimeoutError raised.
        buffers: tree of arrays in "shared" storage, which can be handed over at the start alone.
        wait: kind of the waits, see `parllel.system.waits`; default the best that works here.
        spin_us: the longest spin, in microseconds; default 1000, or 0 if there is no core for each process.
        cores: core numbers to pin the workers to, one after the other; default no pinning.

    Attributes and methods of the environments are reached as through a VectorizedCage, by lists.

    Raises:
        ValueError: for numbers that do not fit each other.
        WorkerError: when a worker died or hangs, some 10 ms after it did or at the time-out. What an
            environment raises arrives as itself, the worker's traceback as its cause. After either all
            workers have ended and the cage is closed. Ctrl-C does the same, except while a row waits for the
            workers: `finish_row` can then be called again.
    """

    def __init__(
        self,
        env_factories: Sequence[EnvFactory] | VectorEnvFactory,
        *,
        n_workers: int,
        n: int | None = None,
        n_groups: int = 1,
        participate: bool = False,
        n_main: int | None = None,
        traj_info: TrajInfoFactory = TrajInfo,
        reset_automatically: bool = True,
        seeds: Sequence[Any] | None = None,
        index: int = 0,
        check: str = "first_episode",
        start_method: str | None = None,
        timeout_s: float = 60.0,
        buffers: Any = None,
        wait: str | None = None,
        spin_us: float | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        by_columns, seeds = factories_by_column(env_factories, n, seeds, "SynchronizedProcessCage")
        super().__init__(
            index,
            env_factories=by_columns,
            seeds=seeds,
            traj_info=traj_info,
            reset_automatically=reset_automatically,
        )
        n = len(seeds)
        self._name = f"cage of environments {index} to {index + n - 1}"
        check_pool_options(timeout_s, participate, n_main, cores)
        if n_main is None:
            # Rounded down, as this process also has the agent to run.
            n_main = n // (n_workers + 1) if participate and n_workers > 0 else 0
        self._groups, shares = divide(n, n_workers, n_groups, n_main)
        make = environments_of(env_factories, seeds, traj_info, reset_automatically, index, check)
        settings = PoolSettings(
            n_workers=n_workers,
            shares=shares,
            index=index,
            reset_automatically=reset_automatically,
            timeout_s=timeout_s,
            wait=wait,
            spin_us=spin_us,
            start_method=start_method,
            cores=cores,
            buffers=buffers,
        )
        self._pool, self._needs_reset = start_pool(make, settings)
        self._policy: MakePolicy | None = None
        self._rows = GroupRows(self._pool, n_groups)

    # ------------------------------------------------------------------ what it is

    def _await_spaces(self) -> Spaces:
        # Waited for when they are first needed, so several cages start side by side.
        spaces = self._pool.await_spaces(self._name)
        self._name = f"{self._name} ({spaces.name})"
        return spaces

    def check_open(self) -> None:
        """Raise ClosedError if nothing can be asked of the workers any more, with the reason."""
        self._pool.check_open(self._name)

    @property
    def groups(self) -> list[slice]:
        """Columns of each group, relative to the cage's first."""
        # A copy, so that a caller cannot change the cage's own.
        return list(self._groups)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.child.pid for worker in self._pool.workers]

    @property
    def worker_policy(self) -> MakePolicy | None:
        """The argument of `set_policy`."""
        return self._policy

    def set_policy(self, policy: MakePolicy) -> None:
        """Let a policy act in the processes that step the environments, see `start_rollout`.

        policy: called without arguments, in each process once for each group; returns a `WorkerPolicy`. It
            travels by cloudpickle; arrays in "managed" storage that it holds stay shared. What it raises is
            raised here.

        Call `set_samples_buffer` afterwards, also if that was done before. The whole buffer becomes known to
        the workers then.
        """
        self._check_idle("set_policy")
        # First: if a worker cannot make its policy, no row may run with some policies new and others old.
        self._rows.unbind()
        self._policy = None
        self._pool.call("set_policy", policy)
        self._policy = policy  # only now: after an error some processes have none

    # ------------------------------------------------------------------ rows

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its columns; the buffer becomes known to the workers if it is not yet."""
        self._check_idle("set_samples_buffer")
        action, fields = self._part_of(samples, columns)
        # Only policies read the other fields, so without them these need not be shareable.
        for_policies = samples if self.has_policy else None
        args = for_policies, action, fields, columns.start
        number = self._pool.begin_call("bind", args)  # what cannot be sent leaves all as it was
        # From here on an error may leave some processes bound to this buffer, and others to the one before.
        self._rows.unbind()
        bound = self._pool.end_call(number, "bind", args)
        names = [
            *(worker.child.name for worker in self._pool.workers),
            f"{self._name}: main process",
        ]
        n = len(bound)  # main, which comes last, may have no share
        # Before any row: a process that is bound elsewhere would write the columns of others.
        check_places(bound, names[:n], self._pool.shares[:n], columns.start, action, fields)
        arrays = buffer_arrays((action, fields))
        self._rows.bind(
            fields["reward"], columns.start, batch_number(arrays), count_batches(arrays)
        )

    def use_batch(self, number: int) -> None:
        """Change to batch `number`, of which the workers learn with their next command."""
        rows = self._rows
        # One condition, as in `start_row`.
        if not rows.takes_batch(number) or self._pool.broken:
            self._check_idle("use_batch")
            check_batch(number, rows.n_batches, self._name)
        rows.use_batch(number)

    def start_reset(self, t: int = 0, *, all_envs: bool = True, group: int = 0) -> None:
        """Let the workers reset a group into row `t`."""
        operation = RESET_ALL if all_envs else RESET_ENDED
        self._refuse(operation, t, group)
        self._rows.start(operation, t, group)

    def start_row(self, t: int, group: int = 0) -> None:
        """Let the workers step a group with the actions of row `t`."""
        rows = self._rows
        # One condition for all that may be wrong, as this runs for each row; `_refuse` finds out what it is.
        if not 0 <= t < rows.ready.get(group, 0) or self._pool.broken is not None:
            self._refuse(STEP, t, group)
        rows.start(STEP, t, group)

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Let the workers step a group with random actions."""
        # All that may be wrong is looked at one by one: random rows are few.
        self._refuse(RANDOM, t, group)
        self._rows.start(RANDOM, t, group)

    def start_rollout(self, T: int, group: int = 0) -> None:
        """Let the policies act and the environments step for rows 0 to T - 1, without a signal between."""
        if not self.has_policy:
            self.check_open()
            super().start_rollout(T, group)  # raises
        self._refuse(ROLLOUT, 0, group)  # of row 0, with which every rollout begins
        if not 1 <= T <= self._rows.T:
            raise ValueError(f"{self._name}: rollout: T: expected 1 to {self._rows.T}, got {T}")
        self._rows.start(ROLLOUT, T, group)

    def _refuse(self, operation: int, t: int, group: int) -> None:
        """Raise what is wrong with starting a row, if anything is."""
        what = operation_name(operation)
        self._check_idle(what, [group])
        if not self._rows.T:
            raise WrongStateError(f"{self._name}: {what}: no samples buffer was set")
        resets = operation in RESETS
        # A reset may also write the row that follows the batch.
        check_row(t, self._rows.T + resets, self._name)
        if not resets and not self._rows.begun[group]:
            raise WrongStateError(f"{self._name}: stepped before a reset")

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Let the workers take random steps; `finish_row(0)` waits for all groups."""
        self._check_idle("decorrelation")
        if not self._rows.T:
            raise WrongStateError(f"{self._name}: decorrelation: no samples buffer was set")
        check_row(t, self._rows.T + 1, self._name)
        check_counts(counts, self.n, self._name)
        # Of every group, as random steps are taken by all environments of the cage.
        if not all(self._rows.begun):
            raise WrongStateError(f"{self._name}: stepped before a reset")
        # Checked here for all of them: if a worker refused, the others would have taken their steps already.
        for i in np.flatnonzero(self._needs_reset).tolist():
            if counts[i]:
                raise WrongStateError(
                    f"{self._name}: environment {self._index + i} stepped before a reset"
                )
        self._rows.start_decorrelation(counts, t)

    def awaited(self, group: int = 0) -> PendingRow:
        """Return the shares of the workers, of which none may have failed; main's is not awaited."""
        self._check_started("row_done", group)
        return self._rows.awaited(group)

    def finish_row(self, group: int = 0) -> None:
        """Step this process's own share, and wait for the workers."""
        # Without a row in progress it is a decorrelation that is to be finished, or nothing was started.
        if self._pool.broken is not None or not self._rows.finish(group):
            self._check_started("finish_row", group)
            self._rows.finish_decorrelation()

    def _check_started(self, method: str, group: int) -> None:
        # One condition in the usual case, as in `start_row`.
        if self._pool.broken is not None or not self._rows.started(group):
            self._pool.check_open(self._name)
            check_group(group, len(self._groups), self._name)
            if not self._rows.decorrelates:
                raise WrongStateError(f"{self._name}: {method}() without a start")

    def _fetch(self, method: str, truncated_only: bool) -> Sequence[Any]:
        pool = self._pool
        # After a failure the cage refuses everything else, but what was rescued may still be fetched.
        if pool.rescued is None:
            self._check_idle(method)
        if not self._rows.to_collect:
            return []
        self._rows.to_collect = False
        return pool.collect(truncated_only) if pool.rescued is None else pool.rescued

    def environment_states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment."""
        self._check_idle("environment_states")
        return self._ask("states")

    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `environment_states` returned."""
        self._check_idle("load_environment_states")
        # Here, as each process takes its part without knowing how many there are in all.
        check_states(states, self.n, self._name)
        self._pool.call("load_states", list(states), salt)
        # The states bring episodes in progress, so rows may start without a reset.
        self._rows.reset_elsewhere()

    def _ask(self, op: str, *args: Any) -> list[Any]:
        self._check_idle(args[0] if args else op)  # messages name the attribute rather than "get"
        return by_column(self._pool.call(op, *args))

    def close(self) -> None:
        """Close the environments and end the processes; may be called twice.

        Raises the first error that an environment's `close` raises, or WorkerError if a worker dies or
        hangs, after everything has ended.
        """
        pool = self._pool
        if pool.broken is not None:
            # Everything ended with the failure, which was raised then. From now on it counts as closed.
            pool.broken, pool.rescued = "used after close()", None
            return
        busy = any(self._rows.in_progress(group) for group in range(len(self._groups)))
        errors: list[Exception] = []
        try:
            # Workers that are busy, or still making environments, would not read a request before the
            # time is up: they are ended without one.
            if not busy and self._spaces is not None:
                errors = pool.close_environments()
        finally:
            pool.end(None)
        if errors:
            raise first_of(errors)

    def _check_idle(self, method: str, groups: Sequence[int] | None = None) -> None:
        """Raise if the cage has ended or is doing something; waits until it is made."""
        self._pool.check_open(self._name)
        # By default all groups: most calls concern environments of each.
        for group in range(len(self._groups)) if groups is None else groups:
            check_group(group, len(self._groups), self._name)
            doing = self._rows.in_progress(group)
            if doing is not None:
                raise WrongStateError(f"{self._name}: {method}: {doing} is not finished")
        if self._spaces is None:
            _ = self.spaces  # waits, and raises what went wrong while the environments were made
