"""What acts in environments, wherever it came from and whoever asks; and the numbers it knows them by."""

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
    """Act in environments that the caller numbers as it likes.

    Observations and actions are those of gymnasium, stacked: for each leaf of the space an array `[N, ...]`,
    in a dict for a Dict space and a tuple for a Tuple space. What a policy remembers of an episode, and
    what it draws, belongs to the number of an environment: it does not depend on which other environments
    are asked for in the same call.

    Attributes:
        observation_space: of one environment; None if any will do.
        action_space: of one environment; None if it is not known.
        recurrent: whether actions depend on what was seen earlier in an episode.
    """

    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    recurrent: bool = False

    @abstractmethod
    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] for observations [N, ...] of N environments.

        env_indices: [N] int of at least 0, all different. An environment that was never reset begins its
            first episode.
        """

    def act_one(self, observation: Tree, env_index: int = 0) -> Tree:
        """Return the action for one observation, as one environment gives and takes them."""
        batch = buffer_map(lambda leaf: np.asarray(leaf)[np.newaxis], observation)
        return buffer_map(lambda leaf: leaf[0], self.act(batch, [env_index]))

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Begin new episodes in environments; None: forget all of them.

        seeds: of the episodes, [N] int of at least 0, one per environment of `env_indices`: all that is drawn
            in an episode follows from its seed. None goes on drawing.
        """

    def state(self) -> State:
        """Return what is remembered of episodes, and the states of generators, for a checkpoint."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""

    def close(self) -> None:
        """Release what it holds; may be called twice."""


def check_policy(policy: Any, name: str) -> None:
    """Raise TypeError unless `policy` is a Policy. name: of the argument, for the message."""
    if not isinstance(policy, Policy):
        raise TypeError(
            f"{name}: expected a Policy, got {policy!r}; policy_of makes one of a specification"
        )


def checked_numbers(env_indices: Any, n: int | None = None) -> list[int]:
    """Return the numbers of environments as ints.

    n: how many observations came with them; None for any number.

    Raises:
        ValueError: if they are not `n` different ints of at least 0.
    """
    numbers = np.asarray(env_indices)
    if numbers.size == 0:
        numbers = numbers.astype(np.intp)
    # A mask would be read as environments 0 and 1.
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise ValueError(f"env_indices: expected ints of at least 0, got {env_indices!r}")
    found: list[int] = numbers.tolist()
    if n is not None and len(found) != n:
        raise ValueError(f"env_indices: expected {n}, one for each observation, got {len(found)}")
    if len(set(found)) != len(found):
        raise ValueError(f"env_indices: expected different environments, got {found}")
    return found
