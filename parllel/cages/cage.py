"""Cage with a single environment in this process."""

from __future__ import annotations

from typing import Any

from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.step_methods import StepMethods, check_outs, plain_action, take_plain
from parllel.cages.stepping.step_result import StepResult
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.errors import WrongStateError


class Cage(VectorizedCage, StepMethods):
    """One environment in this process, with methods to step it from your own loop.

    Args:
        env_factory: function without arguments that makes the environment; may be a class or a
            lambda.
        traj_info: function that makes the record of one episode, e.g. `partial(TrajInfo,
            discount=0.99)`.
        reset_automatically: reset an ended environment within the same step. Otherwise it is not stepped
            until the next reset (see `needs_reset`).
        seed: an int that seeds the environment's first reset, or a SeedSequence from which that seed is
            drawn. It also seeds random actions. None draws a seed.
        index: number of the environment, for error messages.
        check: when to check the values that the environment returns, "first_step", "first_episode" or
            "always".
        infos: keep the info of each row, as for `VectorizedCage`.

    Attributes and methods of the environment are available on the cage: `cage.gravity`, `cage.gravity = 3`,
    `cage.env_method("get_state")`.
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
    ) -> None:
        self._result: StepResult | None = None
        super().__init__(
            [env_factory],
            traj_info=traj_info,
            reset_automatically=reset_automatically,
            seeds=[seed],
            index=index,
            check=check,
            infos=infos,
        )
        # A list of factories always gives Environments, which are stepped one by one.
        assert isinstance(self._envs, Environments)
        self._stepper = self._envs.stepper

    def _of_each(self, values: list[Any]) -> Any:
        # `cage.gravity` is the environment's own value, not a list of one.
        return values[0]

    def _begin(self, method: str, group: int = 0) -> None:
        super()._begin(method, group)
        # The step is already done. It must be awaited all the same, so that code written with a Cage also
        # runs with a ProcessCage, where the result is still on its way.
        if self._result is not None:
            raise WrongStateError(
                f"{self._name}: {method}: the last step was not awaited; call await_step() first"
            )

    def _start_plain(self, op: str, outs: dict[str, Any], *args: Any) -> None:
        self._begin(f"{op}_async")
        # Before the step: a wrong argument must neither step the environment nor draw a random number.
        given = check_outs(outs, self._name)
        if op == "step":
            # Clipped to the Box like the actions of rows, so that both interfaces play the same episodes.
            args = (plain_action(self.spaces, *args),)
        # Out arguments are written now. The interface allows that at any time before `await_step` returns.
        self._result = take_plain(self._stepper, op, given, *args)

    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""
        # First: after close() the error is ClosedError, not a missing step.
        self._order.check_open()
        if self._result is None:
            raise WrongStateError(f"{self._name}: await_step() without a step_async()")
        # Returned only once, as in a ProcessCage, whose answer has left the pipe by then.
        result, self._result = self._result, None
        return result
