"""A cage whose environment lives in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import NamedArrayTuple, Samples
from parllel.cages.cage_interface import CageInterface
from parllel.cages.environments import (
    EnvFactory,
    Environments,
    FinalObservation,
    TrajInfoFactory,
)
from parllel.cages.rows import cage_part
from parllel.cages.spaces import Spaces
from parllel.cages.step_result import (
    StepResult,
    by_part,
    check_outs,
    deliver,
    parts_of,
    plain_action,
)
from parllel.cages.traj_info import TrajInfo
from parllel.errors import ClosedError, WrongStateError
from parllel.types import Tree


class Cage(CageInterface):
    """One environment in this process.

    Args:
        env_factory: makes the environment: a function without arguments, a class, a lambda.
        traj_info: makes the record of one episode, e.g. `partial(TrajInfo, discount=0.99)`.
        reset_automatically: reset an ended environment within the same step. Otherwise it stays still
            until a reset (`needs_reset`).
        seed: a SeedSequence or int for the environment and its action space; None draws one.
        index: number of the environment, for messages.
        check: test what the environment returns, "first_episode" or "always".

    Attributes and methods of the environment are reached through the cage: `cage.gravity`,
    `cage.gravity = 3`, `cage.env_method("get_state")`.
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
    ) -> None:
        self._envs = Environments(
            [env_factory],
            [seed],
            traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
        )
        self._reset_automatically = reset_automatically
        self._closed = False
        self._row_started: str | None = None
        self._result: StepResult | None = None

    # ------------------------------------------------------------------ rows

    @property
    def n(self) -> int:
        """One."""
        return 1

    @property
    def spaces(self) -> Spaces:
        """The spaces of the environment."""
        return self._envs.spaces

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether the environment has ended and waits for a reset, [1]."""
        return self._envs.needs_reset

    @property
    def reset_automatically(self) -> bool:
        """The argument of that name."""
        return self._reset_automatically

    def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
        """Bind the cage to its column of `samples`."""
        self._check_idle("set_samples_buffer")
        action, fields = cage_part(samples)
        self._envs.bind(action, NamedArrayTuple(**fields), columns)

    def start_reset(self, t: int = 0, *, everyone: bool = True, group: int = 0) -> None:
        """Reset, now; `finish_row` completes the call."""
        self._begin("start_reset")
        self._envs.reset_rows(t, everyone=everyone)
        self._row_started = f"reset into row {t}"

    def start_row(self, t: int, group: int = 0) -> None:
        """Step with the action of row `t`, now; `finish_row` completes the call."""
        self._begin("start_row")
        self._envs.step_row(t)
        self._row_started = f"row {t}"

    def start_random_row(self, t: int, group: int = 0) -> None:
        """Step with a random action, now; `finish_row` completes the call."""
        self._begin("start_random_row")
        self._envs.random_row(t)
        self._row_started = f"row {t}"

    def start_decorrelation(self, counts: Sequence[int], t: int = 0) -> None:
        """Take random steps, now; `finish_row` completes the call."""
        self._begin("start_decorrelation")
        self._envs.decorrelate(counts, t)
        self._row_started = "decorrelation"

    def finish_row(self, group: int = 0) -> None:
        """Complete what was started."""
        self._check_open()
        if self._row_started is None:
            raise WrongStateError(f"{self._name}: finish_row() without a start")
        self._row_started = None

    def collect_completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call."""
        self._check_idle("collect_completed_trajs")
        return self._envs.take_completed()

    def collect_final_observations(self) -> list[FinalObservation]:
        """Return the last observations of episodes that ended in rows since the last call."""
        self._check_idle("collect_final_observations")
        return self._envs.take_final()

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
        """Step the environment; each out argument takes its part of the result.

        out_obs gets the observation to act on next, which follows a reset if there was one; out_next_obs
        the one that this step led to.
        """
        outs = {
            "observation": out_obs,
            "next_observation": out_next_obs,
            "reward": out_reward,
            "terminated": out_terminated,
            "truncated": out_truncated,
            "info": out_info,
        }
        self._begin("step_async")
        given = check_outs(outs, self._name)
        step = self._envs.step_one(0, plain_action(self.spaces, action))
        self._result = deliver(parts_of(step), given)

    def random_step_async(self, *, out_action: Any = None, **outs: Any) -> None:
        """Step with an action drawn from the action space; out arguments as for `step_async`."""
        self._begin("random_step_async")
        given = check_outs({"action": out_action, **by_part(outs)}, self._name)
        action, step = self._envs.random_one(0)
        self._result = deliver({"action": action, **parts_of(step)}, given)

    def reset_async(self, *, out_obs: Any = None, out_info: Any = None) -> None:
        """Reset the environment."""
        self._begin("reset_async")
        given = check_outs({"observation": out_obs, "info": out_info}, self._name)
        observation, info = self._envs.reset_one(0)
        self._result = deliver({"observation": observation, "info": info}, given)

    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""
        self._check_open()
        if self._result is None:
            raise WrongStateError(f"{self._name}: await_step() without a step_async()")
        result, self._result = self._result, None
        return result

    # ------------------------------------------------------------------ the environment itself

    def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment, found through its wrappers."""
        self._check_idle(name)
        return self._envs.envs[0].get_wrapper_attr(name)(*args, **kwargs)

    def render(self) -> Any:
        """Return what the environment's `render` returns."""
        return self.env_method("render")

    def __getattr__(self, name: str) -> Any:
        # Called only where ordinary lookup failed. A private name is never the environment's.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self._check_idle(name)
        return self._envs.envs[0].get_wrapper_attr(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            self._check_idle(name)
            set_env_attribute(self._envs.envs[0], name, value)

    def close(self) -> None:
        """Close the environment; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._envs.close()

    @property
    def _name(self) -> str:
        return self._envs.name(0)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._name}: used after close()")

    def _check_idle(self, method: str) -> None:
        self._check_open()
        if self._row_started is not None:
            raise WrongStateError(f"{self._name}: {method}: {self._row_started} is not finished")

    def _begin(self, method: str) -> None:
        self._check_idle(method)
        if self._result is not None:
            raise WrongStateError(f"{self._name}: {method}: a step was not awaited")


def set_env_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute where it is found among the wrappers, or on the environment itself."""
    while True:
        inner = getattr(env, "env", None)
        if inner is None or name in vars(env) or hasattr(type(env), name):
            setattr(env, name, value)
            return
        env = inner
