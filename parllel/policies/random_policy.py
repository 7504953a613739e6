"""Random actions, the same for the same episode wherever it is played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.envs.space_elements import draw_actions
from parllel.policies.policy import Policy, checked_numbers
from parllel.policies.space_trees import as_in_space, count, one_of, stacked
from parllel.seeding import Seeds
from parllel.types import State, Tree


class RandomPolicy(Policy):
    """Draw each action from the action space, as `Space.sample` would.

    Each environment draws from a generator of its own, that of its episode's seed; an environment that was
    never given a seed has one by its number. So draws do not depend on which environments are asked for.

    Args:
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple.
        seed: from which environments without a seed of their own get theirs; None draws one.

    Raises:
        TypeError: for an action space of another kind, or none.
    """

    def __init__(self, action_space: gym.Space[Any], seed: int | None = None) -> None:
        # An unknown space is refused here.
        draw_actions(action_space, np.random.default_rng(0), (1,))
        self.action_space = self._space = action_space
        self._entropy = Seeds(seed).entropy
        self._generators: dict[int, np.random.Generator] = {}

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return actions [N, ...]; of the observations only their number counts."""
        numbers = checked_numbers(env_indices, count(observation))
        drawn = [draw_actions(self._space, self._generator(number), (1,)) for number in numbers]
        return stacked([one_of(as_in_space(one, self._space), 0) for one in drawn], self._space)

    def _generator(self, number: int) -> np.random.Generator:
        if number not in self._generators:
            # By number, so that it does not matter which environments are asked for first.
            generator = Seeds(self._entropy).generator(f"environment {number}")
            self._generators[number] = generator
        return self._generators[number]

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Draw from the seeds of episodes from here on; without seeds go on drawing."""
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
        """Take back what `state` returned."""
        self._entropy = int(state["entropy"])
        self._generators = {}
        for number, saved in state["generators"].items():
            # Any seed, as the state replaces it.
            generator = np.random.default_rng(0)
            generator.bit_generator.state = saved
            self._generators[int(number)] = generator
