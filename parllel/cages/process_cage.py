"""A cage whose environment lives in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import Array
from parllel.buffers import Link, NamedArrayTuple, Samples
from parllel.cages.argument_checks import (
    check_counts,
    check_factory,
    check_group,
    check_row,
    check_states,
)
from parllel.cages.cage_interface import CageInterface
from parllel.cages.environments import (
    EnvFactory,
    Environments,
    FinalObservation,
)
from parllel.cages.rows import cage_part
from parllel.cages.spaces import Spaces
from parllel.cages.step_result import STEP_OUTS, StepResult, by_part, check_outs
from parllel.cages.traj_info import TrajInfo
from parllel.cages.trajectories import TrajInfoFactory, sees_agent_info
from parllel.cages.worker import (
    CALL,
    ERROR,
    METHOD,
    OP_RANDOM,
    OP_RESET,
    OP_STEP,
    ROW,
    ROW_REPLY,
    ROW_REQUEST,
    SEQUENCE,
    serve,
)
from parllel.errors import ClosedError, WorkerError, WrongStateError
from parllel.processes import Child, preload_in_forkserver, raise_packed
from parllel.types import State, Tree

FOUND_DEAD = (WorkerError, BrokenPipeError, ConnectionResetError)  # by whoever writes to the pipe
LAST_WORDS_S = 0.5  # what a dead worker has written is there already
CLOSE_S = 4.0  # an environment that takes longer to close is killed

preload_in_forkserver(__name__)


class ProcessCage(CageInterface):
    """One environment in a process of its own, over a pipe with registered buffers.

    The constructor returns while the process starts, so many start side by side; what goes wrong in it is
    raised by the first call that needs the environment.

    Args:
        env_factory, traj_info, reset_automatically, seed, index, check: as for `Cage`; the first two
            travel by cloudpickle.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: how long the environment may take for one answer, its construction included;
            then it is ended and WorkerTimeoutError raised.
        buffers: tree of arrays in "shared" storage, which can be handed over at the start alone.

    Raises:
        WorkerError: when the process died or hangs; names the environment and what it was doing. What
            the environment itself raises arrives as itself, with the child's traceback as its cause. After
            either the process has ended and the cage is closed.
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
        start_method: str | None = None,
        timeout_s: float = 60.0,
        buffers: Any = None,
    ) -> None:
        check_factory(env_factory, "ProcessCage: env_factory")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: expected a positive number of seconds, got {timeout_s}")
        make = partial(
            Environments,
            [env_factory],
            [seed],
            traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
        )
        self._index = index
        self._timeout_s = timeout_s
        self._sees_agent_info = sees_agent_info(traj_info)
        self._reset_automatically = reset_automatically
        self._broken: str | None = None
        self._error: AttributeError | None = None
        self._spaces: Spaces | None = None
        self._sequence = 0
        self._pending: tuple[str, str] | None = None  # (kind, what), while an answer is due
        self._needs_reset = np.ones(1, bool)
        self._rows = 0  # of the buffer that the cage is bound to
        self._completed = self._final = False
        self._child = Child(
            serve,
            (make,),
            inherited=buffers,
            name=f"cage {index}",
            start_method=start_method,
        )
        self._link = Link(self._child.connection, self._child.pid)
        if buffers is not None:
            self._link.adopt(buffers)

    # ------------------------------------------------------------------ rows

    @property
    def n(self) -> int:
        """One."""
        return 1

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._child.pid

    @property
    def spaces(self) -> Spaces:
        """The spaces of the environment; waits until it is made."""
        if self._spaces is None:
            self._check_open()
            spaces = self._receive_call(0, "while it was made")
            self._child.name = f"cage {self._index} ({spaces.name})"
            self._spaces = spaces
        return self._spaces

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether the environment has ended and waits for a reset, [1]."""
        return self._needs_reset

    @property
    def reset_automatically(self) -> bool:
        """The argument of that name."""
        return self._reset_automatically

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its column; the buffer becomes known to the worker if it is not yet."""
        action, fields = cage_part(samples, agent_info=self._sees_agent_info)
        self._call("bind", action, fields, columns.start, columns.stop)
        self._rows = len(fields["reward"])

    def start_reset(self, t: int = 0, *, everyone: bool = True, group: int = 0) -> None:
        """Tell the worker to reset into row `t`."""
        self._start_row_op(OP_RESET, t, "reset", group, everyone)

    def start_row(self, t: int, group: int = 0) -> None:
        """Tell the worker to step with the action of row `t`."""
        self._start_row_op(OP_STEP, t, "step", group)

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Tell the worker to step with a random action."""
        self._start_row_op(OP_RANDOM, t, "random step", group)

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Tell the worker to take random steps."""
        self._check_bound("decorrelation")
        check_row(t, self._rows + 1, self._child.name)
        check_counts(counts, 1, self._child.name)
        self._begin_call("decorrelate", [int(count) for count in counts], t)
        self._pending = ("decorrelation", "decorrelation")

    def _start_row_op(self, op: int, t: int, what: str, group: int, everyone: bool = False) -> None:
        self._check_bound(what)
        if group:
            check_group(group, 1, self._child.name)
        check_row(t, self._rows + (op == OP_RESET), self._child.name)
        self._sequence += 1
        request = ROW_REQUEST.pack(ROW, op, self._sequence & 0xFFFFFFFF, t, everyone)
        try:
            self._child.send_bytes(request, self._timeout_s)
        except FOUND_DEAD:
            self._receive(
                self._sequence, f"before {what}", LAST_WORDS_S
            )  # it may have left word of why
            raise
        self._pending = ("row", f"{what} at row {t}")

    def _check_bound(self, what: str) -> None:
        self._check_idle(what)
        if not self._rows:
            raise WrongStateError(f"{self._child.name}: {what}: no samples buffer was set")

    def finish_row(self, group: int = 0) -> None:
        """Wait for the worker's answer."""
        self._check_open()
        if group:
            check_group(group, 1, self._child.name)
        if self._pending is None or self._pending[0] in ("plain", "states"):
            raise WrongStateError(f"{self._child.name}: finish_row() without a start")
        kind, what = self._pending
        if kind == "decorrelation":
            self._receive_call(self._sequence, f"during {what}")
        else:
            reply = self._receive(self._sequence, f"during {what}")
            _, _, self._needs_reset[0], self._completed, self._final = ROW_REPLY.unpack(reply)
        self._pending = None

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call."""
        self._check_idle("collect_completed_trajs")
        if not self._completed:
            return []
        self._completed = False
        completed: list[TrajInfo] = self._call("completed")
        return completed

    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the last observations of episodes that ended in rows since the last call."""
        self._check_idle("collect_final_observations")
        if not self._final:
            return []
        self._final = False
        return [FinalObservation(*final) for final in self._call("final", truncated_only)]

    def start_environment_states(self) -> None:
        """Ask the worker; `environment_states` waits for the answer."""
        self._begin_call("states")
        self._pending = ("states", "environment_states")

    def environment_states(self) -> list[State]:
        """Return what a checkpoint keeps of the environment."""
        self._check_open()
        if self._pending is None or self._pending[0] != "states":
            self.start_environment_states()
        states: list[State] = self._receive_call(self._sequence, "during environment_states")
        self._pending = None
        return states

    def load_environment_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `environment_states` returned."""
        check_states(states, 1, self._child.name)
        self._needs_reset[0] = self._call("load_states", list(states), salt)

    # ------------------------------------------------------------------ plain face

    def step_async(
        self,
        action: Tree,
        *,
        out_obs: Any = None,
        out_next_obs: Any = None,
        out_reward: Any = None,
        out_terminated: Any = None,
        out_truncated: Any = None,
        out_info: Any = None,
    ) -> None:
        """Begin a step; out arguments as for `Cage.step_async`, in memory that processes share."""
        outs = {
            "observation": out_obs,
            "next_observation": out_next_obs,
            "reward": out_reward,
            "terminated": out_terminated,
            "truncated": out_truncated,
            "info": out_info,
        }
        self._start_plain("step", outs, action)

    def random_step_async(self, *, out_action: Any = None, **outs: Any) -> None:
        """Begin a step with an action drawn from the action space."""
        self._start_plain("random_step", {"action": out_action, **by_part(outs)})

    def reset_async(self, *, out_obs: Any = None, out_info: Any = None) -> None:
        """Begin a reset."""
        self._start_plain("reset", {"observation": out_obs, "info": out_info})

    def _start_plain(self, op: str, outs: dict[str, Any], *args: Any) -> None:
        self._check_idle(op)
        if op != "reset" and self._needs_reset[0]:
            raise WrongStateError(f"{self._child.name}: stepped before a reset")
        given = check_outs(outs, self._child.name)
        for name, out in given.items():
            if not isinstance(out, (Array, NamedArrayTuple)):  # it would get a copy
                raise TypeError(
                    f"{self._child.name}: {STEP_OUTS[name]}: expected an Array or node, got {out!r}"
                )
        self._begin_call(op, *args, given)
        self._pending = ("plain", op)

    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""
        self._check_open()
        if self._pending is None or self._pending[0] != "plain":
            raise WrongStateError(f"{self._child.name}: await_step() without a step_async()")
        result, self._needs_reset[0] = self._receive_call(
            self._sequence, f"during {self._pending[1]}"
        )
        self._pending = None
        self._completed = True  # perhaps: the worker knows
        stepped: StepResult = result
        return stepped

    # ------------------------------------------------------------------ the environment itself

    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment, found through its wrappers; arguments are pickled."""
        return self._call("method", name, args, kwargs)

    def render(self) -> Any:
        """Return what the environment's `render` returns."""
        return self.env_method("render")

    def __getattr__(self, name: str) -> Any:
        # Called only where ordinary lookup failed. A private name is never the environment's.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if name == "spaces" and self._error is not None:
            raise self._error  # an AttributeError of the environment's constructor led here
        value = self._call("get", name)
        is_method = isinstance(value, str) and value == METHOD
        return partial(self.env_method, name) if is_method else value

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            self._call("set", name, value)

    def close(self) -> None:
        """Close the environment and end the process; may be called twice.

        Raises what the environment's `close` raises, and WorkerError if it dies or hangs, afterwards.
        """
        if self._child.ended:
            self._broken = self._broken or "used after close()"
            return
        try:
            # A worker that is busy cannot hear us: it gets no time, what it writes is not wanted.
            if self._pending is None and self._spaces is not None:
                self._begin_call("close")
                self._receive(self._sequence, "during close", min(self._timeout_s, CLOSE_S))
                self._child.end()
        finally:
            self._child.kill()
            self._link.clear()
            self._broken = "used after close()"

    # ------------------------------------------------------------------ talking to the worker

    def _call(self, op: str, *args: Any) -> Any:
        self._begin_call(op, *args)
        return self._receive_call(self._sequence, f"during {op}")

    def _begin_call(self, op: str, *args: Any) -> None:
        self._check_idle(op)
        self._sequence += 1
        try:
            # This may introduce buffers to the worker, over the same pipe.
            message = self._link.dumps((self._sequence & 0xFFFFFFFF, op, args))
            self._child.send_bytes(CALL + message, self._timeout_s)
        except FOUND_DEAD:
            self._receive(
                self._sequence, f"before {op}", LAST_WORDS_S
            )  # it may have left word of why
            raise

    def _receive_call(self, sequence: int, doing: str) -> Any:
        self._receive(sequence, doing)
        return self._loaded[1]

    def _receive(self, sequence: int, doing: str, timeout_s: float | None = None) -> bytes:
        """Return the reply to a request; replies to earlier ones, interrupted, are dropped."""
        sequence &= 0xFFFFFFFF
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        while True:
            try:
                reply = self._link.receive(self._child, timeout_s, doing)
            except Exception as error:
                # The answer to this request can no longer be told from a later one's.
                self._error = error if isinstance(error, AttributeError) else None
                self._broken = f"ended after {type(error).__name__}: {error}"
                self._child.end(grace_s=0.5 if not isinstance(error, TimeoutError) else 0.0)
                raise
            kind = reply[:1]
            if kind == CALL:
                self._loaded = self._link.loads(reply[1:])
                found = self._loaded[0]
            else:
                found = SEQUENCE.unpack_from(reply)[1]
            if found == sequence and kind == ERROR:
                self._pending = None
                where = f"{self._child.name}, process {self._child.pid}, {doing}"
                raise_packed(reply[SEQUENCE.size :], where)
            if found == sequence:
                return reply

    def _check_open(self) -> None:
        if self._broken is not None:
            raise ClosedError(f"{self._child.name}: {self._broken}")

    def _check_idle(self, method: str) -> None:
        self._check_open()
        if self._pending is not None:
            raise WrongStateError(
                f"{self._child.name}: {method}: {self._pending[1]} is not finished"
            )
        if self._spaces is None:
            _ = self.spaces
