"""Cage whose environment runs in a separate process.

    this process              worker
    batch, row t: action  --> read by step             in shared memory: the batch
    batch, rows t, t + 1  <-- written by step, reset
    ROW, number, row      --> the row may be read now  over the pipe, whose system calls order the memory
    ROW, number, flags    <-- it has been written

Uses a pipe, not the shared words of a SynchronizedProcessCage. Spinning on words is faster for a single cage,
but many processes that each spin for one environment would take the cores from one another.

From the request to its reply the rows belong to the worker; `finish_row` returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.batches import batch_number, count_batches
from parllel.buffers.conversation import Conversation
from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays
from parllel.cages.argument_checks import (
    check_batch,
    check_counts,
    check_factory,
    check_group,
    check_reset_arguments,
    check_row,
    check_states,
    check_which,
    no_infos,
)
from parllel.cages.cage_interface import PendingRow
from parllel.cages.env_registry import RegistryTarget
from parllel.cages.spaces import Spaces, check_alike
from parllel.cages.stepping.environments_for import environments_for
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.step_methods import StepMethods, check_outs
from parllel.cages.stepping.step_result import STEP_OUTS, RowInfos, StepResult
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.cages.workers.bound_places import check_places
from parllel.cages.workers.control import (
    RANDOM,
    RESET_ALL,
    RESET_ENDED,
    RESET_SOME,
    STEP,
    STEP_OR_RESET,
)
from parllel.cages.workers.info_messages import InfoUnpacker
from parllel.cages.workers.pending_request import MADE, PendingRequest
from parllel.cages.workers.remote_cage import RemoteCage, by_column
from parllel.cages.workers.restarts import can_restart
from parllel.cages.workers.worker import ROW, ROW_REPLY, ROW_REQUEST, serve
from parllel.errors import WorkerError, WrongStateError
from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import preload_in_forkserver
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import State

# Imported once by the fork server, instead of by each worker.
preload_in_forkserver(__name__)

_RESETS = RESET_ALL, RESET_ENDED, RESET_SOME
_ROWS = "row", "decorrelation"  # kinds of requests that `finish_row` waits for


class ProcessCage(RemoteCage, StepMethods):
    """One environment in a separate process, with the batch in shared memory and requests over a pipe.

    The constructor returns while the process starts, so many can start in parallel. An error in the process
    is raised by the first call that needs the environment.

    Args:
        env_factory, traj_info, reset_automatically, seed, index, check, infos: as for `Cage`; the first two
            are pickled by cloudpickle.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: time limit for one answer of the environment, including its construction. After that the
            process is killed and WorkerTimeoutError raised.
        buffers: tree of arrays in "shared" storage, which can only be passed when the process starts.
        restarts: how often the process is restarted if it dies or hangs in a row, see `collect_crashes`. By
            default it is not.

    Raises:
        WorkerError: if the process died or hangs, and was not restarted. The message names the environment
            and what it was doing. An exception of the environment is re-raised with its type, and the
            child's traceback as its cause. In either case the process has ended and the cage is closed.
        RestartsUsedUpError: if it died too often, as the budget sees it.
    """

    def __init__(
        self,
        env_factory: EnvFactory,
        *,
        traj_info: TrajInfoFactory = TrajInfo,
        reset_automatically: bool = True,
        seed: Any = None,
        index: int = 0,
        check: str = "first_episode",
        infos: bool = False,
        start_method: str | None = None,
        timeout_s: float = 60.0,
        buffers: Any = None,
        restarts: RestartBudget | None = None,
    ) -> None:
        check_factory(env_factory, "ProcessCage: env_factory")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: expected a positive number of seconds, got {timeout_s}")
        super().__init__(
            index,
            env_factories=[env_factory],
            seeds=[seed],
            traj_info=traj_info,
            reset_automatically=reset_automatically,
            restarts=restarts,
            infos=infos,
        )
        self._make = partial(
            environments_for,
            [env_factory],
            traj_info=traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
            infos=infos,
        )
        self._name = f"cage {index}"
        # Of the bound buffer: rows, number of the current batch, number of batches.
        self._rows = self._batch = self._n_batches = 0
        self._to_collect = False
        self._infos: bytes | None = b"" if infos else None
        self._unpacker = InfoUnpacker()
        self._start_method, self._timeout_s, self._buffers = start_method, timeout_s, buffers
        self._bound: tuple[Any, ...] | None = None  # arguments of the last "bind"
        # Of the row or decorrelation in progress: what another process repeats if this one dies.
        self._unfinished: tuple[Any, ...] = ()
        self._lost = False  # whether a process was restarted and has had no row yet
        self._start_process(replaces=False)

    def _start_process(self, *, replaces: bool) -> None:
        make = partial(self._make, seeds=list(self._seeds_now))
        self._child = Child(
            RegistryTarget(serve),  # workers do not run the script that registers environments
            (make, self._infos is not None, replaces),
            inherited=self._buffers,
            name=self._name,
            start_method=self._start_method,
            start_timeout_s=self._timeout_s,
        )
        self._conversation = Conversation(
            self._child, timeout_s=self._timeout_s, buffers=self._buffers
        )
        self._pending = PendingRequest(self._conversation)

    # ------------------------------------------------------------------ rows

    def _await_spaces(self) -> Spaces:
        # Awaited only on first use, so that many cages start in parallel.
        self._pending.expect((MADE,), "made already")
        spaces: Spaces = self._conversation.value_of(self._pending.take())
        self._name = self._child.name = f"{self._name} ({spaces.name})"
        return spaces

    def check_open(self) -> None:
        """Check that the worker can be used. Raises ClosedError with the reason."""
        self._conversation.check_open()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._child.pid

    @property
    def died(self) -> bool:
        """Whether the process has ended, for any reason."""
        return self._child.died()

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its column, and send the buffer to the worker."""
        self._check_idle("set_samples_buffer")
        action, fields = self._part_of(samples, columns)
        # If a field cannot be shared this raises, and worker and cage keep their earlier binding.
        number = self._conversation.ask("bind", None, action, fields, columns.start)
        self._rows = self._n_batches = 0  # if this fails, what the worker is bound to is unknown
        self._bound = None
        self._end_bind(number, action, fields, columns.start)
        self._bound = action, fields, columns.start
        if self._restarts is not None:
            self._restarts.first_column = columns.start
        arrays = buffer_arrays((action, fields))
        self._batch, self._n_batches = batch_number(arrays), count_batches(arrays)
        self._rows = len(fields["reward"])

    def _end_bind(self, number: int, action: Any, fields: dict[str, Any], column: int) -> None:
        bound = self._conversation.answer(number, "during bind")
        # Checked once, here: rows are written unchecked, and a wrong place would go unnoticed.
        check_places([bound], [self._name], [[slice(0, 1)]], column, action, fields)

    def use_batch(self, number: int) -> None:
        """Switch to batch `number`. The worker receives the number with its next request."""
        # Nothing is sent here: changing the batch costs no message.
        self._check_idle("use_batch")
        check_batch(number, self._n_batches, self._name)
        self._batch = number

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
        """Start a reset into row `t` in the worker. Seeds and options are sent in a call ahead of it."""
        operation = RESET_ALL if all_envs else RESET_ENDED
        if which is not None:
            # The worker's own flags of RESET_SOME, in private memory, are never set.
            operation = RESET_ALL if check_which(which, 1, self._name)[0] else RESET_SOME
        if seeds is not None or options is not None:
            check_reset_arguments(seeds, options, 1, self._name)
            self._check_row_op("reset", t, group)
            due = operation == RESET_ENDED and bool(self._needs_reset[0])
            given = None if seeds is None else list(seeds)
            chosen = [operation == RESET_ALL or due]
            self._conversation.call("set_reset", 0, chosen, given, options)
        self._start_row_op(operation, t, "reset", group)

    def start_row(self, t: int, group: int = 0) -> None:
        """Start a step with the action of row `t` in the worker."""
        self._start_row_op(STEP, t, "step", group)

    def start_row_or_reset(self, t: int, group: int = 0) -> None:
        """Start a step in the worker, or a reset if the environment waits for one."""
        self._start_row_op(STEP_OR_RESET, t, "step", group)

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Start a step with a random action in the worker."""
        self._start_row_op(RANDOM, t, "random step", group)

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Start random steps in the worker."""
        self._check_idle("decorrelation", bound=True)
        check_row(t, self._rows + 1, self._name)
        check_counts(counts, 1, self._name)
        # With the batch number, which the worker may not know yet.
        whole = [int(count) for count in counts]  # numpy ints take far more bytes when pickled
        self._unfinished = "decorrelate", whole, t, self._batch
        self._send_unfinished()

    def _check_row_op(self, what: str, t: int, group: int) -> None:
        self._check_idle(what, bound=True)
        if group:
            check_group(group, 1, self._name)
        # A reset may also write row T, which follows the batch.
        check_row(t, self._rows + (what == "reset"), self._name)

    def _start_row_op(self, operation: int, t: int, what: str, group: int) -> None:
        self._check_row_op(what, t, group)
        self._unfinished = operation, t, what
        if self._lost:
            self._lost = False
            # A reset loses nothing more: the crash has been recorded.
            if operation not in _RESETS:
                self._lose_unfinished()
        try:
            self._send_row(operation, t, what)
        except WorkerError as error:
            self._repeat(error)

    def _send_row(self, operation: int, t: int, what: str) -> None:
        # A few bytes without pickling, as this is sent for every step.
        number = self._conversation.next_number()
        request = ROW_REQUEST.pack(ROW, number, operation, t, self._batch)
        self._conversation.send(request, f"before {what}")
        # After the send: if it fails, there is no answer to wait for.
        self._pending.begin("row", f"{what} at row {t}", number)

    def _send_unfinished(self) -> None:
        if self._unfinished[0] != "decorrelate":
            self._send_row(*self._unfinished)
            return
        number = self._conversation.ask(*self._unfinished)
        self._pending.begin("decorrelation", "decorrelation", number)

    def awaited(self, group: int = 0) -> PendingRow:
        """Return the request in progress. Before `spaces` is read, this is making the environment."""
        check_group(group, 1, self._name)
        self._pending.expect((MADE, *_ROWS), "row_done() was called without a start")
        return self._pending

    def finish_row(self, group: int = 0) -> None:
        """Wait for the worker's reply; re-raises an exception of the environment."""
        check_group(group, 1, self._name)
        pending = self._pending
        pending.expect(_ROWS, "finish_row() was called without a start")
        # In this order, as `take` clears the kind.
        try:
            kind, reply = pending.kind, pending.take()
        except WorkerError as error:
            kind, reply = self._finish_again(error)
        # Decorrelation reports no episodes, and never leaves an environment that needs a reset.
        if kind == "row":
            _, _, self._needs_reset[0], self._to_collect = ROW_REPLY.unpack_from(reply)
            if self._infos is not None:
                self._infos = reply[ROW_REPLY.size :]

    # ------------------------------------------------------------------ restarts

    def _finish_again(self, error: WorkerError) -> tuple[str | None, bytes]:
        """Have another process repeat what the last one did not finish; return the kind and the reply."""
        while True:
            self._repeat(error)
            try:
                return self._pending.kind, self._pending.take()
            except WorkerError as again:
                error = again

    def _repeat(self, error: WorkerError) -> None:
        """Restart the process, and send it what the last one did not finish."""
        while True:
            self._restart(error)
            self._lose_unfinished()
            try:
                self._send_unfinished()
                return
            except WorkerError as again:
                error = again

    def _restart(self, error: WorkerError) -> None:
        """Start another process in place of the dead one. Raises `error` unless restarts are possible."""
        while True:
            if self._restarts is None or not can_restart(error):
                raise error
            self._restarts.begin(error, [0])
            # The process has ended; this frees what the conversation holds.
            self._conversation.close(forgive=True)
            self._start_process(replaces=True)
            self._lost = True
            try:
                spaces = self._conversation.value_of(self._pending.take())
                check_alike(spaces, self.spaces, self._index, self._index)
                if self._bound is not None:
                    number = self._conversation.ask("bind", None, *self._bound)
                    self._end_bind(number, *self._bound)
                return
            except WorkerError as again:
                error = again
            except BaseException as again:
                self._conversation.break_off(again)
                raise

    def _lose_unfinished(self) -> None:
        """Record what the unfinished row of a restarted process loses."""
        assert self._restarts is not None
        self._lost = False
        operation, t, *_ = self._unfinished
        # A reset begins with new episodes, but the ones in progress were lost; decorrelation has none.
        if operation != "decorrelate":
            self._restarts.lose(None if operation in _RESETS else t, [0])

    def _restart_between_rows(self, error: WorkerError) -> None:
        self._restart(error)
        assert self._restarts is not None
        self._restarts.lose(None, [0])
        self._needs_reset[0] = True

    def restart_dead(self) -> None:
        """Restart the process if it has died since the last row."""
        idle = self._conversation.broken is None and self._pending.kind is None
        if self._restarts is not None and idle and self._child.died():
            error = self._conversation.failure("between two batches")
            if not isinstance(error, WorkerError):
                raise error
            self._restart_between_rows(error)

    def collect_infos(self) -> RowInfos:
        """Return the infos of the last row or reset."""
        self._check_idle("collect_infos")
        if self._infos is None:
            raise no_infos(self._name)
        packed, self._infos = self._infos, b""
        return self._unpacker.unpack(packed, 1)

    def _fetch(self, method: str, truncated_only: bool) -> list[Any]:
        conversation = self._conversation
        # The worker has failed and sent its pending results after the exception; none if it was killed.
        if conversation.error is not None:
            found, conversation.pending_results = conversation.pending_results, None
            return [] if found is None else [found]
        self._check_idle(method)
        # Each row's reply tells whether there is anything, so most collections need no request.
        if not self._to_collect:
            return []
        # Before the call: results that the worker took for an answer that failed are gone.
        self._to_collect = False
        # Filtered in the worker: final observations that are not wanted are not pickled.
        try:
            return [conversation.call("collect", truncated_only)]
        except WorkerError as error:
            self._restart_between_rows(error)
            return []

    def start_environment_states(self) -> None:
        """Request the state from the worker; `environment_states` waits for the answer."""
        # Separate from the wait, so that the workers of many cages answer in parallel.
        self._check_idle("environment_states")
        try:
            number = self._conversation.ask("states")
        except WorkerError as error:
            self._restart_between_rows(error)
            number = self._conversation.ask("states")
        self._pending.begin("states", "environment_states", number)

    def environment_states(self) -> list[State]:
        """Return the state of the environment for a checkpoint."""
        # A sampler has called start_environment_states of all its cages; otherwise the request is sent now.
        if self._pending.kind != "states":
            self.start_environment_states()
        self._conversation.check_open()
        try:
            reply = self._pending.take()
        except WorkerError as error:
            self._restart_between_rows(error)
            return self.environment_states()
        return by_column([self._conversation.value_of(reply)])

    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `environment_states`."""
        check_states(states, 1, self._name)
        self._check_idle("load_environment_states")
        # The worker returns the flag: the state may be that of an environment that waits for a reset.
        self._needs_reset[0] = self._conversation.call("load_states", list(states), salt)

    # ------------------------------------------------------------------ plain face

    def _start_plain(self, op: str, outs: dict[str, Any], *args: Any) -> None:
        self._check_idle(op)
        # The worker would refuse it too, but only when the result is awaited.
        if op != "reset" and self._needs_reset[0]:
            raise WrongStateError(f"{self._name}: stepped before a reset")
        given = check_outs(outs, self._name)
        for name, out in given.items():
            # Other arrays would be pickled, and the worker would write to a copy.
            if not isinstance(out, (Array, NamedArrayTuple)):
                raise TypeError(
                    f"{self._name}: {STEP_OUTS[name]}: expected an Array or node, got {out!r}"
                )
        self._pending.begin("plain", op, self._conversation.ask(op, given, *args))

    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""
        self._pending.expect(("plain",), "await_step() without a step_async()")
        reply = self._pending.take()
        stepped: StepResult
        # The worker wrote the out arguments before it replied, so the caller may read them now.
        stepped, self._needs_reset[0] = self._conversation.value_of(reply)
        self._to_collect = True  # unknown from this reply, so the next collection asks
        return stepped

    # ------------------------------------------------------------------ talking to the worker

    _asks_one = True

    def _ask(self, op: str, *args: Any) -> list[Any]:
        self._check_idle(op)
        return by_column([self._conversation.call(op, *args)])

    def _check_idle(self, method: str, *, bound: bool = False) -> None:
        self._conversation.check_open()
        if self._spaces is None:
            _ = self.spaces  # waits, and raises an error from making the environment
        self._pending.refuse(method)
        if bound and not self._rows:
            raise WrongStateError(f"{self._name}: {method}: no samples buffer was set")

    def start_close(self) -> None:
        """Ask the worker to close the environment; `close` waits for it."""
        # A busy worker would read the request too late. `close` kills it, as its result is not needed.
        if self._pending.kind is None:
            self._conversation.begin_close()

    def close(self) -> None:
        """Close the environment and end the process. Idempotent.

        Once the process has ended, an exception raised by the environment's `close` is re-raised.
        If the worker died or hung, WorkerError is raised.
        """
        self.start_close()  # does nothing if a sampler has already asked all its cages
        # A process that would be restarted for the next row is not missed here.
        self._bound = None  # frees the buffer
        self._conversation.close(forgive=self._restarts is not None)
