"""Statistics of an episode."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from parllel.types import State, Tree


class TrajInfo:
    """Statistics of one episode, which may span any number of batches.

    Rewards are the environment's, before any transform. Subclasses may add attributes, extend `step`, and
    override `see_agent_info`. Numeric attributes without a leading underscore are logged.

    Args:
        discount: discount per step, for `discounted_return`.

    Attributes:
        length: number of steps.
        return_: sum of rewards; logged as `return`.
        discounted_return: discounted sum of rewards, from the first step.
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
        """Add one step.

        observation: the observation after the step, before any reset.
        action: the action passed to the environment, clipped to the bounds of a Box.
        """
        self.length += 1
        self.return_ += reward
        self.discounted_return += self._weight * reward
        self._weight *= self._discount

    def see_agent_info(self, agent_info: Tree) -> None:
        """Receive the agent's info for the step passed to the next call of `step`.

        agent_info: `samples.agent.agent_info` of that cell, a NamedTuple of copied numpy values.

        This is called only if a subclass overrides it, and only for the steps of a batch, not for
        random steps or `step_async`.
        """

    def state(self) -> State:
        """Return all attributes, for a checkpoint of an episode in progress.

        Attributes may be numbers, strings, arrays, and lists, tuples, deques and dicts of these. A
        subclass with other attributes must extend this method and `load_state`.
        """
        return dict(vars(self))

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        for name, value in state.items():
            now = vars(self).get(name)
            # A deque is saved as a list, without `maxlen`; the existing deque still has it.
            if isinstance(now, deque):
                now.clear()
                now.extend(value)
                continue
            scalar = isinstance(value, np.ndarray) and value.ndim == 0
            setattr(self, name, value[()] if scalar else value)

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics to log: `length`, `return`, `discounted_return`, and a subclass's own."""
        return {
            name.rstrip("_"): value
            for name, value in vars(self).items()
            if not name.startswith("_")
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.as_dict()})"
