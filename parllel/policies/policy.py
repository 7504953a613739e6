"""Interface of policies, and checks of the environment numbers passed to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers.tree import buffer_map
from parllel.types import Closeable, State, Tree


class Policy(Closeable, ABC):
    """Something that acts in environments, which the caller numbers freely.

    Observations and actions are gymnasium's, stacked: an array `[N, ...]` per leaf of the space, in a dict
    for a Dict space and a tuple for a Tuple space. A policy's memory and random numbers belong to the number
    of an environment: they do not depend on which other environments are in the same call.

    Attributes:
        observation_space: observation space of one environment; None accepts any.
        action_space: action space of one environment; None if unknown.
        recurrent: whether actions depend on earlier observations of the episode.
    """

    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    recurrent: bool = False

    @abstractmethod
    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] for observations [N, ...] of N environments.

        env_indices: [N] int of at least 0, all different. A number that is new begins its first episode.
        """

    def act_one(self, observation: Tree, env_index: int = 0) -> Tree:
        """Return the action for the observation of a single environment, without the dimension N."""
        batch = buffer_map(lambda leaf: np.asarray(leaf)[np.newaxis], observation)
        return buffer_map(lambda leaf: leaf[0], self.act(batch, [env_index]))

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Begin new episodes in environments. None forgets all environments.

        seeds: seeds of the episodes, [N] int of at least 0, one per environment of `env_indices`. A
            seed determines all random numbers of the episode. None continues the generators.
        """

    def state(self) -> State:
        """Return the memory of episodes and the states of generators, for a checkpoint."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""

    def close(self) -> None:
        """Release all resources. Idempotent."""


def check_policy(policy: Any, name: str) -> None:
    """Raise TypeError unless `policy` is a Policy. name: of the argument, for the error."""
    if not isinstance(policy, Policy):
        raise TypeError(
            f"{name}: expected a Policy, got {policy!r}; policy_of creates one from a specification"
        )


def checked_numbers(env_indices: Any, n: int | None = None) -> list[int]:
    """Return environment numbers as ints.

    n: number of observations passed with them; None skips the check.

    Raises:
        ValueError: unless they are `n` different ints of at least 0.
    """
    numbers = np.asarray(env_indices)
    if numbers.size == 0:
        numbers = numbers.astype(np.intp)
    # A boolean mask would be read as environments 0 and 1.
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise ValueError(f"env_indices: expected ints of at least 0, got {env_indices!r}")
    found: list[int] = numbers.tolist()
    if n is not None and len(found) != n:
        raise ValueError(f"env_indices: expected {n}, one for each observation, got {len(found)}")
    if len(set(found)) != len(found):
        raise ValueError(f"env_indices: expected different environments, got {found}")
    return found
