"""Cage of many environments in worker processes that wait for one shared word.

    this process                    shared memory                        worker w
    agent: action[t]            --> batch, columns of w              --> read by step
    start_row: record, go = n   --> control lines, see control.py    --> may begin
    finish_row: steps its own   --> batch, columns of this process
    finish_row: waits           <-- batch, rows t and t + 1; done = n <- written by step and reset
    needs_reset                 <-- a flag for each column           <-- before done = n
    calls, long answers         <-> one pipe for each worker         <-> see synchronized_worker.py

From `start_row` to the end of `finish_row`, a group's rows belong to the processes that step it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.batches import batch_number, count_batches
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays
from parllel.cages.argument_checks import (
    check_batch,
    check_counts,
    check_group,
    check_pool_options,
    check_reset_arguments,
    check_row,
    check_states,
    check_which,
    no_infos,
)
from parllel.cages.cage_interface import PendingRow
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.environments_for import factories_by_column
from parllel.cages.stepping.info_table import JoinedInfos
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.step_result import RowInfos
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.cages.workers.bound_places import check_places
from parllel.cages.workers.control import (
    RANDOM,
    RESET_ALL,
    RESET_ENDED,
    RESET_SOME,
    ROLLOUT,
    STEP,
    STEP_OR_RESET,
)
from parllel.cages.workers.group_rows import RESETS, GroupRows, operation_name
from parllel.cages.workers.info_messages import InfoUnpacker
from parllel.cages.workers.remote_cage import RemoteCage, by_column
from parllel.cages.workers.replacements import Replacements
from parllel.cages.workers.restarts import can_restart
from parllel.cages.workers.start_workers import PoolSettings, divide, environments_of, start_pool
from parllel.cages.workers.worker_policy import MakePolicy
from parllel.errors import WrongStateError, first_of
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import State, Tree, overrides


class SynchronizedProcessCage(RemoteCage):
    """Many environments in worker processes. Writing a single number starts a row.

    Workers own columns of the shared batch and wait for the number of the next command: they spin for a while
    and then sleep. `participate=True` lets the main process step a share of the environments instead of only
    waiting. This is faster on machines with few cores.

    Args:
        env_factories, n, traj_info, reset_automatically, seeds, index, check, infos: as for
            `VectorizedCage`; factories are pickled by cloudpickle. Each environment behaves the same
            for any number of workers. A VectorEnvFactory makes one native vector environment for each
            group of each process; their samples may depend on the number of workers, see
            `VectorEnvFactory`.
        n_workers: number of processes besides this one.
        n_groups: number of groups of columns that are stepped separately, 1 to 5. An
            AlternatingSampler needs two.
        participate: whether this process steps environments too, in `finish_row`. If one of these
            crashes or hangs, so does this process.
        n_main: number of environments that this process steps; defaults to an equal share. Requires
            `participate`.
        start_method: "fork", "forkserver" or "spawn"; defaults to forkserver where it exists.
        timeout_s: time limit for one answer of the workers or one row of a rollout, including their start.
            After that they are killed and WorkerTimeoutError raised.
        buffers: tree of arrays in "shared" storage, which can only be passed when the processes start.
        wait: how to wait, see `parllel.system.waits`; defaults to the fastest kind available.
        spin_us: longest spin in microseconds; defaults to 1000, or 0 if there are fewer cores than
            processes.
        cores: core numbers to pin the workers to, in turn; by default, workers are not pinned.
        restarts: how often workers are restarted that die or hang in a row, see `collect_crashes`. All
            environments of such a worker begin new episodes, and the others continue. By default none is
            restarted. Not with `participate`, `infos`, policies, or wait="semaphore".

    Attributes and methods of the environments are available as lists, as on a VectorizedCage.

    Raises:
        ValueError: for numbers that do not fit together.
        WorkerError: if a worker died (detected within about 10 ms) or hangs (at the time-out), and was not
            restarted. An exception of an environment is re-raised with its type, and the worker's traceback
            as its cause. In either case all workers have ended and the cage is closed. Ctrl-C also ends the
            workers, except while a row waits for them: `finish_row` can then be called again.
        RestartsUsedUpError: if workers died too often, as the budget sees it.
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
        infos: bool = False,
        start_method: str | None = None,
        timeout_s: float = 60.0,
        buffers: Any = None,
        wait: str | None = None,
        spin_us: float | None = None,
        cores: Sequence[int] | None = None,
        restarts: RestartBudget | None = None,
    ) -> None:
        by_columns, seeds = factories_by_column(env_factories, n, seeds, "SynchronizedProcessCage")
        super().__init__(
            index,
            env_factories=by_columns,
            seeds=seeds,
            traj_info=traj_info,
            reset_automatically=reset_automatically,
            restarts=restarts,
            infos=infos,
        )
        n = len(seeds)
        self._name = f"cage of environments {index} to {index + n - 1}"
        check_pool_options(timeout_s, participate, n_main, cores)
        if restarts is not None and participate:
            raise ValueError(
                "restarts: expected None with participate=True: this process cannot be restarted if one of "
                "its own environments crashes"
            )
        if n_main is None:
            # Rounded down, as this process also runs the agent.
            n_main = n // (n_workers + 1) if participate and n_workers > 0 else 0
        self._groups, shares = divide(n, n_workers, n_groups, n_main)
        make = environments_of(
            env_factories, self._seeds_now, traj_info, reset_automatically, index, check, infos
        )
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
            infos=infos,
            restarts=restarts is not None,
        )
        self._pool, self._needs_reset, self._which, start = start_pool(make, settings)
        # One for each group: its workers' infos usually have one layout, those of two groups may differ.
        self._unpackers = [InfoUnpacker() for _ in range(n_groups)]
        self._keeps_infos = infos
        self._policy: MakePolicy | None = None
        self._rows = GroupRows(self._pool, n_groups)
        self._replacements: Replacements | None = None
        if self._restarts is not None:
            self._replacements = Replacements(
                self._pool, self._rows, self._needs_reset, self._restarts, start
            )
            self._pool.recover = self._replacements.recover
            self._pool.take_losses = self._replacements.take_losses

    # ------------------------------------------------------------------ what it is

    def _await_spaces(self) -> Spaces:
        # Awaited only on first use, so that several cages start in parallel.
        spaces = self._pool.await_spaces(self._name)
        if self._replacements is not None:
            self._replacements.spaces = spaces
        self._name = f"{self._name} ({spaces.name})"
        return spaces

    def check_open(self) -> None:
        """Check that the workers can be used. Raises ClosedError with the reason."""
        self._pool.check_open(self._name)

    @property
    def groups(self) -> list[slice]:
        """Columns of each group, relative to the cage's first."""
        # A copy, which the caller may change.
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
        """Set the policy that acts in the processes of the environments, see `start_rollout`.

        policy: function that returns a `WorkerPolicy`, called without arguments once per group in
            each process. It is pickled by cloudpickle; any arrays in "managed" storage that it
            holds stay shared. Its exceptions are re-raised here.

        Call `set_samples_buffer` afterwards, even if it was called before. It then sends the whole
        buffer to the workers.
        """
        self._check_idle("set_policy")
        if self._restarts is not None:
            raise ValueError(
                f"{self._name}: set_policy: expected a cage without restarts, as a policy acts for a whole "
                "batch; make the cage without restarts, or let the main process act"
            )
        # First: if a worker cannot make its policy, no row may run with a mixture of old and new policies.
        self._rows.unbind()
        self._policy = None
        self._pool.call("set_policy", policy)
        self._policy = policy  # only after success: after an error some processes have none

    # ------------------------------------------------------------------ rows

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its columns, and send the buffer to the workers."""
        self._check_idle("set_samples_buffer")
        action, fields = self._part_of(samples, columns)
        # Only policies read other fields, so without a policy these may be in local memory.
        for_policies = samples if self.has_policy else None
        args = for_policies, action, fields, columns.start
        number = self._pool.begin_call("bind", args)  # if pickling fails, nothing has changed
        # From here on an error may leave some processes bound to the new buffer and others to the old one.
        self._rows.unbind()
        bound = self._pool.end_call(number, "bind", args)
        names = [
            *(worker.child.name for worker in self._pool.workers),
            f"{self._name}: main process",
        ]
        n = len(bound)  # without main, which comes last, if it has no share
        # Before any row: a process bound to a wrong place would overwrite columns of others.
        check_places(bound, names[:n], self._pool.shares[:n], columns.start, action, fields)
        arrays = buffer_arrays((action, fields))
        if self._replacements is not None and self._restarts is not None:
            self._replacements.bound, self._restarts.first_column = args, columns.start
        # Last, as it allows rows to start.
        self._rows.bind(
            fields["reward"], columns.start, batch_number(arrays), count_batches(arrays)
        )

    def use_batch(self, number: int) -> None:
        """Switch to batch `number`. The workers receive the number with the next command."""
        rows = self._rows
        # One condition, as in `start_row`.
        if not rows.takes_batch(number) or self._pool.broken:
            self._check_idle("use_batch")
            check_batch(number, rows.n_batches, self._name)
        rows.use_batch(number)

    def start_reset(
        self,
        t: int = 0,
        *,
        all_envs: bool = True,
        which: NDArray[np.bool_] | None = None,
        seeds: Sequence[Any] | None = None,
        options: dict[str, Any] | None = None,
        group: int = 0,
    ) -> None:
        """Start resetting a group into row `t`. Seeds and options are sent in a call ahead of it."""
        operation = RESET_ALL if all_envs else RESET_ENDED
        if which is not None:
            which, operation = check_which(which, self.n, self._name), RESET_SOME
        self._refuse(operation, t, group)
        if seeds is not None or options is not None:
            check_reset_arguments(seeds, options, self.n, self._name)
            chosen = self._needs_reset | all_envs if which is None else which
            given = None if seeds is None else list(seeds)
            self._pool.call("set_reset", group, chosen.tolist(), given, options)
        if which is not None:
            # Only the group's own columns: the workers may be reading those of another group.
            columns = self._groups[group]
            self._which[columns] = which[columns]
        self._rows.start(operation, t, group)

    def start_row(self, t: int, group: int = 0) -> None:
        """Start stepping a group with the actions of row `t`."""
        rows = self._rows
        # One condition for all errors, as this runs in every row; `_refuse` finds out which it is.
        if not 0 <= t < rows.ready.get(group, 0) or self._pool.broken is not None:
            self._refuse(STEP, t, group)
        rows.start(STEP, t, group)

    def start_row_or_reset(self, t: int, group: int = 0) -> None:
        """Start stepping a group's environments, and resetting those that wait."""
        rows = self._rows
        if not 0 <= t < rows.ready.get(group, 0) or self._pool.broken is not None:
            self._refuse(STEP_OR_RESET, t, group)
        rows.start(STEP_OR_RESET, t, group)

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Start stepping a group with random actions."""
        # Random rows are few, so everything is checked one by one.
        self._refuse(RANDOM, t, group)
        self._rows.start(RANDOM, t, group)

    def start_rollout(self, T: int, group: int = 0) -> None:
        """Start rows 0 to T - 1, in which the workers' policies act and environments step on their own."""
        if not self.has_policy:
            self.check_open()
            super().start_rollout(T, group)  # raises
        self._refuse(ROLLOUT, 0, group)  # row 0, with which every rollout begins
        if not 1 <= T <= self._rows.T:
            raise ValueError(
                f"{self._name}: rollout: T: expected a number from 1 to {self._rows.T}, got {T}"
            )
        self._rows.start(ROLLOUT, T, group)

    def _refuse(self, operation: int, t: int, group: int) -> None:
        """Check that a row can be started. Raises the error that applies."""
        what = operation_name(operation)
        self._check_idle(what, [group])
        if not self._rows.T:
            raise WrongStateError(f"{self._name}: {what}: no samples buffer was set")
        resets = operation in RESETS
        # A reset may also write row T, which follows the batch.
        check_row(t, self._rows.T + resets, self._name)
        if not resets and not self._rows.begun[group]:
            raise WrongStateError(f"{self._name}: stepped before a reset")

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Start random steps; `finish_row(0)` waits for all groups."""
        self._check_idle("decorrelation")
        if not self._rows.T:
            raise WrongStateError(f"{self._name}: decorrelation: no samples buffer was set")
        check_row(t, self._rows.T + 1, self._name)
        check_counts(counts, self.n, self._name)
        # All groups must have been reset, as all environments take random steps.
        if not all(self._rows.begun):
            raise WrongStateError(f"{self._name}: stepped before a reset")
        # Checked here for all: if one worker refused, the others would already have taken their steps.
        for i in np.flatnonzero(self._needs_reset).tolist():
            if counts[i]:
                raise WrongStateError(
                    f"{self._name}: environment {self._index + i} stepped before a reset"
                )
        self._rows.start_decorrelation(counts, t)

    def awaited(self, group: int = 0) -> PendingRow:
        """Return the workers' shares of the row in progress; main's own share is not included."""
        self._check_started("row_done", group)
        return self._rows.awaited(group)

    def finish_row(self, group: int = 0) -> None:
        """Step this process's own share, and wait for the workers."""
        # Without a row in progress, a decorrelation must be, or nothing was started.
        if self._pool.broken is not None or not self._rows.finish(group):
            self._check_started("finish_row", group)
            self._rows.finish_decorrelation()

    def bound_step(self, group: int = 0, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return a function that steps a row of this batch, see `CageInterface.bound_step`.

        All final observations are kept: after a failure, the processes deliver what they have.
        """
        step_row = super().bound_step(group)
        if (
            self._restarts is not None
            or not 0 <= group < len(self._groups)
            or overrides(self, SynchronizedProcessCage, "start_row", "finish_row")
        ):
            return step_row
        return self._rows.bound_step(group, otherwise=step_row)

    def _check_started(self, method: str, group: int) -> None:
        # One condition in the usual case, as in `start_row`.
        if self._pool.broken is not None or not self._rows.started(group):
            self._pool.check_open(self._name)
            check_group(group, len(self._groups), self._name)
            if not self._rows.decorrelates:
                raise WrongStateError(f"{self._name}: {method}() was called without a start")

    def restart_dead(self) -> None:
        """Restart workers that have died since the last row."""
        ready = self._pool.broken is None and self._spaces is not None
        if self._restarts is not None and ready and not self._rows.busy:
            self._pool.find_dead()

    def collect_infos(self) -> RowInfos:
        """Return the infos of the last row or reset of each group."""
        rows = self._rows
        # One condition in the usual case, as in `start_row`.
        if self._pool.broken is not None or rows.busy or rows.decorrelates:
            self._check_idle("collect_infos")
        if not self._keeps_infos:
            raise no_infos(self._name)
        infos: list[Sequence[dict[str, Any]]] = []
        finals: dict[int, tuple[Tree, dict[str, Any]]] = {}
        for group in range(len(self._groups)):
            for share, row in self._infos_of(group):
                infos.append(row.infos)
                for i, final in row.finals.items():
                    finals[share.start + i] = final
        return RowInfos(JoinedInfos(infos), finals)

    def _infos_of(self, group: int) -> Iterator[tuple[slice, RowInfos]]:
        """Yield the columns and infos of each process, in the order of the columns."""
        pool, control = self._pool, self._pool.control
        by_pipe: list[bytes] | None = None
        shares = [of_process[group] for of_process in pool.shares]
        unpacker = self._unpackers[group]
        for w, share in enumerate(shares[: len(pool.workers)]):
            packed = control.take_message(group, w)
            if packed is None:  # too long for the mail box
                by_pipe = pool.call("infos", group) if by_pipe is None else by_pipe
                packed = by_pipe[w]
            if packed:
                # Reported once, like those of the main process.
                control.clear_message(group, w)
            yield share, unpacker.unpack(packed, share.stop - share.start)
        if pool.main is not None:
            yield shares[-1], pool.main.take_infos(group)

    def _fetch(self, method: str, truncated_only: bool) -> Sequence[Any]:
        pool = self._pool
        # After a failure the cage is closed, but results rescued from the workers can still be fetched.
        if pool.rescued is None:
            self._check_idle(method)
        if not self._rows.to_collect:
            return []
        # Before the request: results rescued after a failure, too, are returned only once.
        self._rows.to_collect = False
        return pool.collect(truncated_only) if pool.rescued is None else pool.rescued

    def environment_states(self) -> list[State]:
        """Return the state of each environment for a checkpoint."""
        self._check_idle("environment_states")
        return self._ask("states")

    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `environment_states`."""
        self._check_idle("load_environment_states")
        # Checked here, as each process takes its slice without knowing the total.
        check_states(states, self.n, self._name)
        self._pool.call("load_states", list(states), salt)
        # The states include episodes in progress, so rows may start without a reset.
        self._rows.reset_elsewhere()

    def _ask(self, op: str, *args: Any) -> list[Any]:
        self._check_idle(args[0] if args else op)  # messages name the attribute, not "get"
        return by_column(self._pool.call(op, *args))

    def close(self) -> None:
        """Close the environments and end the processes. Idempotent.

        Once everything has ended, the first exception raised by an environment's `close` is
        re-raised. If a worker died or hung, WorkerError is raised.
        """
        pool = self._pool
        if pool.broken is not None:
            # Everything ended with the failure, which was raised then. From now on the cage is simply closed.
            pool.broken, pool.rescued = "used after close()", None
            return
        busy = any(self._rows.in_progress(group) for group in range(len(self._groups)))
        errors: list[Exception] = []
        try:
            # Workers that are busy, or still making environments, may not read a request in time: they are
            # killed without one.
            if not busy and self._spaces is not None:
                errors = pool.close_environments()
        finally:
            # After Ctrl-C as well: no worker may outlive the cage.
            pool.end(None)
        # A worker that would be restarted for the next row is not missed here.
        if self._restarts is not None:
            errors = [error for error in errors if not can_restart(error)]
        if errors:
            raise first_of(errors)

    def _check_idle(self, method: str, groups: Sequence[int] | None = None) -> None:
        """Check that the cage is open and its groups idle; waits until the environments are made.

        Raises:
            ClosedError, WrongStateError: otherwise.
        """
        self._pool.check_open(self._name)
        # By default all groups, as most calls concern all environments.
        for group in range(len(self._groups)) if groups is None else groups:
            check_group(group, len(self._groups), self._name)
            doing = self._rows.in_progress(group)
            if doing is not None:
                raise WrongStateError(f"{self._name}: {method}: {doing} is not finished")
        if self._spaces is None:
            _ = self.spaces  # waits, and raises an error from making the environments
