"""A function of one observation that acts in any number of environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.policies.one_action import OneAction
from parllel.policies.policy import Policy, checked_numbers
from parllel.policies.space_trees import count, one_of, stacked
from parllel.types import Tree


class FunctionPolicy(Policy):
    """Call a function for each environment, with the observation as the environment gives it.

    Args:
        function: returns an action for an observation. It cannot know which environment it is asked for, so
            what it remembers would be mixed up between episodes: derive from `Policy` for that.
        observation_space, action_space: None takes whatever comes. With an action space, actions are clipped
            to a Box, and refused if they are not in the space.

    Raises, from `act`:
        ValueError: for an action outside of the space; names the function.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function: expected a callable, got {function!r}")
        self.observation_space, self.action_space = observation_space, action_space
        self._function = function
        # Callable objects have no name of their own.
        self._name = getattr(function, "__qualname__", None) or type(function).__name__
        self._read = None if action_space is None else OneAction(action_space)

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] of N calls."""
        numbers = checked_numbers(env_indices, count(observation))
        actions = [
            # A copy: the function may keep it, and the next one is written to the same memory.
            self._checked(self._function(one_of(observation, i)))
            for i in range(len(numbers))
        ]
        return stacked(actions, self.action_space)

    def _checked(self, action: Any) -> Any:
        if self._read is None or self.action_space is None:
            return action
        try:
            chosen = self._read.of(action)
        except ValueError as error:
            raise ValueError(f"policy {self._name}: {error}") from error
        if not self.action_space.contains(chosen):
            raise ValueError(
                f"policy {self._name}: expected an action of {self.action_space}, got {action!r}"
            )
        return chosen
