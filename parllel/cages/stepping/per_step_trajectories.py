"""Episodes whose TrajInfo overrides `step`, which is then called at every step.

This costs Python time per step and environment, and rules out the fast path of `Environments`; see `follow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.stepping.trajectories import End, Trajectories, TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.envs.states.plain_values import freeze, thaw
from parllel.types import State, Tree


class PerStepTrajectories(Trajectories):
    """Calls `TrajInfo.step` at every step.

    Args:
        example: a TrajInfo made by `make`, used for the first environment.
        sees_agent_info: whether the TrajInfo overrides `see_agent_info`.
    """

    per_step = True

    def __init__(
        self, make: TrajInfoFactory, n: int, example: TrajInfo, *, sees_agent_info: bool
    ) -> None:
        super().__init__(make, n)
        self._trajs = [example, *(make() for _ in range(n - 1))]
        self.sees_agent_info = sees_agent_info

    def see_agent_info(self, i: int, agent_info: Tree) -> None:
        """Pass the agent_info to the TrajInfo."""
        self._trajs[i].see_agent_info(agent_info)

    def begin(self, i: int) -> None:
        """Make a new TrajInfo."""
        # Not reset in place: only the factory knows the initial attributes of a subclass.
        self._trajs[i] = self._make()

    def step(
        self,
        i: int,
        observation: Tree,
        action: Tree,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        """Pass the step to the TrajInfo."""
        self._trajs[i].step(observation, action, reward, terminated, truncated, info)

    def end(self, i: int) -> None:
        """Report the TrajInfo and make a new one."""
        # The object itself goes to the sampler and on to callbacks, which may keep it.
        self._completed.append((i, self._trajs[i]))
        self._trajs[i] = self._make()

    def state(self, i: int) -> State:
        """Return the class and state of a TrajInfo. Raises TypeError for values that cannot be saved."""
        traj = self._trajs[i]
        name = type(traj).__qualname__
        # `freeze` copies: later steps must not change the checkpoint.
        return {"class": name, "traj": freeze(traj.state(), f"{name}.state()")}

    def load_state(self, i: int, state: State) -> None:
        """Load a state into a new TrajInfo. Raises ValueError for the state of another class."""
        # A new one, so that attributes missing from the state have the values of a new episode.
        traj = self._trajs[i] = self._make()
        # By name, as a state may come from a file, which holds no classes.
        expected, found = type(traj).__qualname__, state.get("class", "of plain sums")
        if found != expected:
            raise ValueError(f"TrajInfo: expected the state of class {expected}, got {found}")
        traj.load_state(thaw(state["traj"]))

    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """End the given episodes, whose rewards have already been passed to `step`."""
        # Converted before any episode ends: if a reward is not a number, the caller abandons the row, which
        # ends the episodes then.
        row = np.array([float(reward) for reward in rewards])
        for i, _, _ in ended:
            self.end(i)
        return row

    def add_stack(self, rewards: NDArray[Any], ended: Sequence[int]) -> None:
        """End the given episodes, whose rewards have already been passed to `step`."""
        for i in ended:
            self.end(i)

    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """End the given episodes, whose rewards have already been passed to `step`."""
        for i, _, _ in ended:
            self.end(i)
