"""Policies for tests, with memory, randomness and a known weakness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.policies.policy import Policy
from parllel.testing.rock_paper_scissors_env import MOVES
from parllel.types import State, Tree


class FrequencyPolicy(Policy):
    """Rock, paper, scissors against the opponent's most frequent move of the episode.

    At first, and in some rounds, it draws its move. It is beaten by whatever beats its last move.

    Args:
        observation_space, action_space: of `RockPaperScissorsEnv`; None for any.
        drawn: the share of rounds in which it draws.
    """

    recurrent = True

    def __init__(
        self,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        drawn: float = 0.2,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.drawn = drawn
        self.closed = 0
        self._counts: dict[int, NDArray[np.int64]] = {}
        self._generators: dict[int, np.random.Generator] = {}

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return moves [N] int64."""
        moves = [self._move(row, int(i)) for row, i in zip(observation, env_indices, strict=True)]
        return np.array(moves, np.int64)

    def _move(self, seen: NDArray[Any], number: int) -> int:
        if number not in self._counts:
            self._counts[number] = np.zeros(MOVES, np.int64)
        if number not in self._generators:
            # An environment that was given no seed has draws of its own all the same.
            self._generators[number] = np.random.default_rng(number)
        counts, generator = self._counts[number], self._generators[number]
        counts += seen[MOVES:].astype(np.int64)
        # Both in every round, so that the draws of a round do not depend on those before it.
        share, move = generator.random(), int(generator.integers(MOVES))
        if share < self.drawn or not counts.any():
            return move
        return int(counts.argmax() + 1) % MOVES

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Forget counts; draw from the seeds, where there are some."""
        if env_indices is None:
            self._counts.clear()
            self._generators.clear()
            return
        for i, number in enumerate(env_indices):
            self._counts.pop(int(number), None)
            seed = None if seeds is None else seeds[i]
            if seed is not None:
                self._generators[int(number)] = np.random.default_rng(seed)

    def state(self) -> State:
        """Return counts and generators by environment."""
        generators = self._generators.items()
        return {
            "counts": {str(number): counts.copy() for number, counts in self._counts.items()},
            "generators": {str(number): one.bit_generator.state for number, one in generators},
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.reset()
        for number, counts in state["counts"].items():
            self._counts[int(number)] = np.array(counts)
        for number, saved in state["generators"].items():
            generator = self._generators[int(number)] = np.random.default_rng()
            generator.bit_generator.state = saved

    def close(self) -> None:
        """Count the calls in `closed`."""
        self.closed += 1
