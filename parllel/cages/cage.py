"""A cage of one environment in this process."""

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
    """One environment in this process: a VectorizedCage of one, with methods for your own loops.

    Args:
        env_factory: makes the environment: a function without arguments, a class, a lambda.
        traj_info: makes the record of one episode, e.g. `partial(TrajInfo, discount=0.99)`.
        reset_automatically: reset an ended environment within the same step. Otherwise it is not stepped
            until it is reset (`needs_reset`).
        seed: an int, the seed of the environment's first reset, or a SeedSequence from which that is drawn;
            random actions follow from it too. None draws one.
        index: number of the environment, for messages.
        check: how long to check what the environment returns, "first_episode" or "always".

    The cage gives access to attributes and methods of the environment: `cage.gravity`, `cage.gravity = 3`,
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
    ) -> None:
        self._result: StepResult | None = None
        super().__init__(
            [env_factory],
            traj_info=traj_info,
            reset_automatically=reset_automatically,
            seeds=[seed],
            index=index,
            check=check,
        )
        # Of environments that were made by functions, as here, and so are stepped one by one.
        assert isinstance(self._envs, Environments)
        self._stepper = self._envs.stepper

    def _of_each(self, values: list[Any]) -> Any:
        # `cage.gravity` is what the environment itself would give, not a list of one.
        return values[0]

    def _begin(self, method: str, group: int = 0) -> None:
        super()._begin(method, group)
        # Steps are taken at once, in this process. That each must be awaited is for code that is written with
        # a Cage to run with a ProcessCage as well, where the result is still on its way.
        if self._result is not None:
            raise WrongStateError(
                f"{self._name}: {method}: the last step was not awaited; call await_step"
            )

    def _start_plain(self, op: str, outs: dict[str, Any], *args: Any) -> None:
        self._begin(f"{op}_async")
        # Before the step: a wrong argument must not cost the environment a step, nor the seed a draw.
        given = check_outs(outs, self._name)
        if op == "step":
            # Clipped to the Box as the actions of rows are, so that both ways play the same.
            args = (plain_action(self.spaces, *args),)
        # Written now, before the caller awaits it; the interface allows that at any time until then.
        self._result = take_plain(self._stepper, op, given, *args)

    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""
        # After close() that is the error to report, not a missing step.
        self._order.check_open()
        if self._result is None:
            raise WrongStateError(f"{self._name}: await_step() without a step_async()")
        # Handed out once, as a ProcessCage's is: its answer has left the pipe then.
        result, self._result = self._result, None
        return result
