"""The same action always."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers.paths import part_at
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.envs.space_elements import zero_of
from parllel.policies.one_action import OneAction
from parllel.policies.policy import Policy, checked_numbers
from parllel.policies.space_trees import count
from parllel.types import Tree


class ConstantPolicy(Policy):
    """Choose one action, whatever there is to see.

    Args:
        action: an element of the action space; numbers may be of any type.
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple.

    Raises:
        ValueError: if the action is not in the space.
    """

    def __init__(self, action: Tree, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space
        chosen = OneAction(action_space).of(action)
        # Compared, as it is clipped to the bounds of a Box on its way.
        same = all(
            np.allclose(leaf, part_at(action, tuple(path.split(".")) if path else ()))
            for path, leaf in buffer_leaves(chosen)
        )
        if not same or not action_space.contains(chosen):
            raise ValueError(f"action: expected one of {action_space}, got {action!r}")
        self._action = chosen

    @classmethod
    def noop(cls, action_space: gym.Space[Any]) -> ConstantPolicy:
        """Return a policy that does nothing: zeros, or the numbers of the space that are nearest to them.

        In most environments with discrete actions 0 is to do nothing; not in all.
        """
        return cls(zero_of(action_space), action_space)

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return N times the action, in new memory."""
        n = len(checked_numbers(env_indices, count(observation)))
        return buffer_map(lambda leaf: np.repeat(np.asarray(leaf)[np.newaxis], n, 0), self._action)
