"""A cage whose environment lives in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import Array
from parllel.buffers import (
    NamedArrayTuple,
    Samples,
    batch_number,
    buffer_arrays,
    count_batches,
)
from parllel.cages.answers import FinalObservation
from parllel.cages.argument_checks import (
    check_batch,
    check_counts,
    check_factory,
    check_group,
    check_row,
    check_states,
)
from parllel.cages.bound_places import check_places
from parllel.cages.cage_interface import CageInterface
from parllel.cages.env_registry import WithRegistry
from parllel.cages.environments import Environments
from parllel.cages.follow import sees_agent_info
from parllel.cages.make_envs import EnvFactory
from parllel.cages.requests import Requests
from parllel.cages.rows import cage_part
from parllel.cages.spaces import Spaces
from parllel.cages.step_result import STEP_OUTS, StepResult, by_part, check_outs
from parllel.cages.traj_info import TrajInfo
from parllel.cages.trajectories import TrajInfoFactory
from parllel.cages.worker import (
    METHOD,
    OP_RANDOM,
    OP_RESET,
    OP_STEP,
    ROW_REPLY,
    serve,
)
from parllel.errors import WrongStateError
from parllel.processes import Child, preload_in_forkserver
from parllel.types import State, Tree

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
        self._sees_agent_info = sees_agent_info(traj_info)
        self._reset_automatically = reset_automatically
        self._spaces: Spaces | None = None
        self._needs_reset = np.ones(1, bool)
        # Of the buffer that the cage is bound to: rows, number of the current batch, how many there are.
        self._rows = self._batch = self._n_batches = 0
        self._completed = self._final = False
        self._child = Child(
            WithRegistry(serve),
            (make,),
            inherited=buffers,
            name=f"cage {index}",
            start_method=start_method,
        )
        self._requests = Requests(self._child, timeout_s, buffers)

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
            self._requests.check_open()
            spaces: Spaces = self._requests.result("while it was made")  # which nobody asked for
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
        bound = self._call("bind", action, fields, columns.start, columns.stop)
        names, shares = [self._child.name], [[slice(0, 1)]]
        check_places([[bound]], names, shares, columns.start, action, fields)
        arrays = buffer_arrays((action, fields))
        self._batch, self._n_batches = batch_number(arrays), count_batches(arrays)
        self._rows = len(fields["reward"])

    def use_batch(self, number: int) -> None:
        """Go over to batch `number`, which comes with the next row that the worker is asked for."""
        self._check_idle("use_batch")
        check_batch(number, self._n_batches, self._child.name)
        self._batch = number

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
        self._requests.begin("decorrelate", [int(count) for count in counts], t, self._batch)
        self._requests.pending = ("decorrelation", "decorrelation")

    def _start_row_op(self, op: int, t: int, what: str, group: int, everyone: bool = False) -> None:
        self._check_bound(what)
        if group:
            check_group(group, 1, self._child.name)
        check_row(t, self._rows + (op == OP_RESET), self._child.name)
        self._requests.start_row(op, t, self._batch, what, everyone=everyone)

    def _check_bound(self, what: str) -> None:
        self._check_idle(what)
        if not self._rows:
            raise WrongStateError(f"{self._child.name}: {what}: no samples buffer was set")

    def finish_row(self, group: int = 0) -> None:
        """Wait for the worker's answer."""
        requests = self._requests
        requests.check_open()
        if group:
            check_group(group, 1, self._child.name)
        if requests.pending is None or requests.pending[0] in ("plain", "states"):
            raise WrongStateError(f"{self._child.name}: finish_row() without a start")
        kind, what = requests.pending
        reply = requests.receive(f"during {what}")
        if kind == "row":
            _, _, self._needs_reset[0], self._completed, self._final = ROW_REPLY.unpack(reply)
        requests.pending = None

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call.

        After a failure: those that the worker still could hand over. So for final observations.
        """
        left_behind = self._requests.left_behind
        if left_behind is not None:
            completed: list[TrajInfo] = left_behind[0][:]
            left_behind[0].clear()
            return completed
        self._check_idle("collect_completed_trajs")
        if not self._completed:
            return []
        self._completed = False
        completed = self._call("completed")
        return completed

    def collect_final_observations(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the last observations of episodes that ended in rows since the last call."""
        left_behind = self._requests.left_behind
        if left_behind is not None:
            finals = [FinalObservation(*final) for final in left_behind[1]]
            left_behind[1].clear()
            return [one for one in finals if one.truncated or not truncated_only]
        self._check_idle("collect_final_observations")
        if not self._final:
            return []
        self._final = False
        return [FinalObservation(*final) for final in self._call("final", truncated_only)]

    def start_environment_states(self) -> None:
        """Ask the worker; `environment_states` waits for the answer."""
        self._check_idle("environment_states")
        self._requests.begin("states")
        self._requests.pending = ("states", "environment_states")

    def environment_states(self) -> list[State]:
        """Return what a checkpoint keeps of the environment."""
        requests = self._requests
        requests.check_open()
        if requests.pending is None or requests.pending[0] != "states":
            self.start_environment_states()
        states: list[State] = requests.result("during environment_states")
        requests.pending = None
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
        self._requests.begin(op, *args, given)
        self._requests.pending = ("plain", op)

    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""
        requests = self._requests
        requests.check_open()
        if requests.pending is None or requests.pending[0] != "plain":
            raise WrongStateError(f"{self._child.name}: await_step() without a step_async()")
        result, self._needs_reset[0] = requests.result(f"during {requests.pending[1]}")
        requests.pending = None
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
        if name == "spaces" and self._requests.error is not None:
            raise self._requests.error  # an AttributeError of the environment's constructor led here
        value = self._call("get", name)
        is_method = isinstance(value, str) and value == METHOD
        return partial(self.env_method, name) if is_method else value

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            self._call("set", name, value)

    def start_close(self) -> None:
        """Ask the worker to close the environment; `close` waits for that."""
        if self._spaces is not None:
            self._requests.begin_close()

    def close(self) -> None:
        """Close the environment and end the process; may be called twice.

        Raises what the environment's `close` raises, and WorkerError if it dies or hangs, afterwards.
        """
        self.start_close()  # one that is busy cannot hear us: it gets no time, what it writes is not wanted
        self._requests.close()

    # ------------------------------------------------------------------ talking to the worker

    def _call(self, op: str, *args: Any) -> Any:
        self._check_idle(op)
        return self._requests.call(op, *args)

    def _check_idle(self, method: str) -> None:
        requests = self._requests
        requests.check_open()
        if requests.pending is not None:
            raise WrongStateError(
                f"{self._child.name}: {method}: {requests.pending[1]} is not finished"
            )
        if self._spaces is None:
            _ = self.spaces
