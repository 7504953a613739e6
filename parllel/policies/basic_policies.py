"""Policies without learning: a constant action, random actions, a function of the observation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers.paths import part_at
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.envs.space_elements import draw_actions, zero_of
from parllel.policies.action_adapter import ActionAdapter
from parllel.policies.policy import Policy, checked_numbers
from parllel.policies.space_trees import as_in_space, count, one_of, stacked
from parllel.seeding import Seeds
from parllel.types import State, Tree


class ConstantPolicy(Policy):
    """Always chooses the same action.

    Args:
        action: an element of the action space; numbers may be of any type.
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple.

    Raises:
        ValueError: if the action is not in the space.
    """

    def __init__(self, action: Tree, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space
        chosen = ActionAdapter(action_space).of(action)
        # Compared afterwards, because the adapter clips to the bounds of a Box.
        same = all(
            np.allclose(leaf, part_at(action, tuple(path.split(".")) if path else ()))
            for path, leaf in buffer_leaves(chosen)
        )
        if not same or not action_space.contains(chosen):
            raise ValueError(f"action: expected one of {action_space}, got {action!r}")
        self._action = chosen

    @classmethod
    def noop(cls, action_space: gym.Space[Any]) -> ConstantPolicy:
        """Return a no-op policy, whose action is zeros, clipped to the bounds of the space.

        In most environments with discrete actions, 0 does nothing, but not in all.
        """
        return cls(zero_of(action_space), action_space)

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return N copies of the action."""
        n = len(checked_numbers(env_indices, count(observation)))
        return buffer_map(lambda leaf: np.repeat(np.asarray(leaf)[np.newaxis], n, 0), self._action)


class RandomPolicy(Policy):
    """Samples each action from the action space, as `Space.sample` does.

    Each environment has a separate generator, seeded by its episode; without an episode seed, by its number.
    So samples do not depend on which environments are asked for.

    Args:
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple.
        seed: source of the seeds of environments without one; None draws it.

    Raises:
        TypeError: for another kind of action space, or None.
    """

    def __init__(self, action_space: gym.Space[Any], seed: int | None = None) -> None:
        # Rejects unknown spaces.
        draw_actions(action_space, np.random.default_rng(0), (1,))
        self.action_space = self._space = action_space
        self._entropy = Seeds(seed).entropy
        self._generators: dict[int, np.random.Generator] = {}

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return actions [N, ...]. Observations are ignored."""
        numbers = checked_numbers(env_indices, count(observation))
        drawn = [draw_actions(self._space, self._generator(number), (1,)) for number in numbers]
        return stacked([one_of(as_in_space(one, self._space), 0) for one in drawn], self._space)

    def _generator(self, number: int) -> np.random.Generator:
        if number not in self._generators:
            # Seeded by number, so the order in which environments first appear does not matter.
            generator = Seeds(self._entropy).generator(f"environment {number}")
            self._generators[number] = generator
        return self._generators[number]

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Reseed with the episodes' seeds. Without seeds, the generators continue."""
        if env_indices is None or seeds is None:
            return
        for number, seed in zip(checked_numbers(env_indices, len(seeds)), seeds, strict=True):
            if seed is not None:
                self._generators[number] = Seeds(seed).generator("actions")

    def state(self) -> State:
        """Return the states of all generators, as JSON values."""
        states = {str(n): one.bit_generator.state for n, one in self._generators.items()}
        return {"entropy": self._entropy, "generators": states}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._entropy = int(state["entropy"])
        self._generators = {}
        for number, saved in state["generators"].items():
            # Any seed: the state replaces it.
            generator = np.random.default_rng(0)
            generator.bit_generator.state = saved
            self._generators[int(number)] = generator


class FunctionPolicy(Policy):
    """Calls a function once per environment, with the observation as returned by the environment.

    Args:
        function: maps an observation to an action. It does not know the environment, so it must not remember
            anything of an episode: derive from `Policy` for that.
        observation_space, action_space: None accepts anything. With an action space, actions are clipped to a
            Box, and rejected if they are not in the space.

    Raises, from `act`:
        ValueError: for an action that is not in the space; names the function.
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
        # Callable objects have no __name__.
        self._name = getattr(function, "__qualname__", None) or type(function).__name__
        self._read = None if action_space is None else ActionAdapter(action_space)

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] of N calls."""
        numbers = checked_numbers(env_indices, count(observation))
        actions = [
            # A copy: the function may keep it, and the caller reuses its memory.
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
