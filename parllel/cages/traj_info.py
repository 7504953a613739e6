"""What is remembered of each episode."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from parllel.types import State, Tree


class TrajInfo:
    """Statistics of one episode, from its first step to its end, whatever batches it spans.

    Rewards are those of the environment, before any transform. Subclasses add attributes and
    extend `step`, and have a `see_agent_info`; numeric attributes without a leading underscore are logged.

    Args:
        discount: per step, for `discounted_return`.
    """

    def __init__(self, discount: float = 1.0) -> None:
        self.length = 0
        self.return_ = 0.0
        self.discounted_return = 0.0
        self._discount = discount
        self._weight = 1.0

    def step(
        self,
        observation: Tree,
        action: Tree,
        reward: float,
        terminated: bool,
        truncated: bool,
        env_info: dict[str, Any],
    ) -> None:
        """Take in one step; `observation` is what followed `action` before any reset.

        action: as the environment got it, that is, inside of a Box.
        """
        self.length += 1
        self.return_ += reward
        self.discounted_return += self._weight * reward
        self._weight *= self._discount

    def see_agent_info(self, agent_info: Tree) -> None:
        """Receive the agent's info for the step that `step` is called for next.

        agent_info: `samples.agent.agent_info` of that cell, a NamedTuple of numpy values of its own.

        Called for steps of a batch, where a subclass has a method of its own; not for random steps, nor for
        those of `step_async`.
        """

    def state(self) -> State:
        """Return what a checkpoint keeps of an episode in progress: all attributes.

        A subclass whose attributes are more than numbers, strings, arrays, and lists, tuples, deques and
        dicts of those, extends this and `load_state`.
        """
        return dict(vars(self))

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        for name, value in state.items():
            now = vars(self).get(name)
            if isinstance(now, deque):  # it knows its longest length
                now.clear()
                now.extend(value)
                continue
            scalar = isinstance(value, np.ndarray) and value.ndim == 0
            setattr(self, name, value[()] if scalar else value)

    def as_dict(self) -> dict[str, Any]:
        """Return what is worth logging: `length`, `return`, `discounted_return`, and a subclass's."""
        return {
            name.rstrip("_"): value
            for name, value in vars(self).items()
            if not name.startswith("_")
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.as_dict()})"
