"""Episodes whose TrajInfo has a `step` of its own, which is called at every step.

That is Python per step and environment, and rules out the quick path of `Environments`: see `follow`.
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
    """Call `TrajInfo.step` at every step.

    Args:
        example: what `make` made, taken for the first environment.
        sees_agent_info: whether it has a `see_agent_info` of its own.
    """

    per_step = True

    def __init__(
        self, make: TrajInfoFactory, n: int, example: TrajInfo, *, sees_agent_info: bool
    ) -> None:
        super().__init__(make, n)
        self._trajs = [example, *(make() for _ in range(n - 1))]
        self.sees_agent_info = sees_agent_info

    def see_agent_info(self, i: int, agent_info: Tree) -> None:
        """Pass it to the TrajInfo."""
        self._trajs[i].see_agent_info(agent_info)

    def begin(self, i: int) -> None:
        """Make a new TrajInfo."""
        # Not reset in place: subclasses add attributes, and only the factory knows how these start.
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
        """Pass it to the TrajInfo."""
        self._trajs[i].step(observation, action, reward, terminated, truncated, info)

    def end(self, i: int) -> None:
        """Report the TrajInfo and make a new one."""
        # The object itself goes to the sampler, and on to callbacks and logs, which may keep it.
        self._completed.append((i, self._trajs[i]))
        self._trajs[i] = self._make()

    def state(self, i: int) -> State:
        """Return class and state of its TrajInfo; TypeError for what no file can hold."""
        traj = self._trajs[i]
        name = type(traj).__qualname__
        # Frozen, which copies: further steps must not change what the checkpoint holds.
        return {"class": name, "traj": freeze(traj.state(), f"{name}.state()")}

    def load_state(self, i: int, state: State) -> None:
        """Load it into a new TrajInfo; ValueError if it is that of another class."""
        # A new one, so that attributes which the state lacks are those of a new episode.
        traj = self._trajs[i] = self._make()
        # Names are compared, as a state may come from a file of another process, which holds no classes.
        expected, came = type(traj).__qualname__, state.get("class", "of plain sums")
        if came != expected:
            raise ValueError(f"TrajInfo: expected the state of class {expected}, got {came}")
        traj.load_state(thaw(state["traj"]))

    def add_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> NDArray[np.float64]:
        """End episodes; `step` has taken the rewards already."""
        # Before any episode ends: the caller abandons a row whose reward is no number, and that ends them.
        row = np.array([float(reward) for reward in rewards])
        for i, _, _ in ended:
            self.end(i)
        return row

    def add_stack(self, rewards: NDArray[Any], ended: Sequence[int]) -> None:
        """End episodes; `step` has taken the rewards already."""
        for i in ended:
            self.end(i)

    def abandon_row(self, rewards: Sequence[Any], ended: Sequence[End]) -> None:
        """End episodes; `step` has taken the rewards already."""
        for i, _, _ in ended:
            self.end(i)
