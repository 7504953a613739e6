"""A two-player game in which a predictable player loses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.envs.states.plain_values import freeze, thaw
from parllel.types import State

MOVES = 3  # rock, paper, scissors: each beats the one before it
PLAYERS = ("red", "blue")


class RockPaperScissorsEnv:
    """PettingZoo-style parallel environment of several rounds of rock, paper, scissors.

    Both move at once. Each observes the moves of the round before, its own and then the other's, each as
    three numbers of which one is 1; zeros before the first round. The reward of a round is 1 for the player
    that wins it and -1 for the other, 0 for equal moves. The last round terminates both.

    Args:
        rounds: range (lowest, highest) of the number of rounds, drawn per episode.
    """

    def __init__(self, rounds: tuple[int, int] = (10, 20)) -> None:
        self.metadata = {"name": "rock_paper_scissors_v0", "render_modes": []}
        self.render_mode = None
        self.rounds = rounds
        self.possible_agents = list(PLAYERS)
        self.agents: list[str] = []
        self._spaces = {
            name: (spaces.Box(0, 1, (2 * MOVES,), np.float32), spaces.Discrete(MOVES))
            for name in PLAYERS
        }
        self._left = 0
        self._generator = np.random.default_rng()

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the space of one agent."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the space of one agent."""
        return self._spaces[agent][1]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; a seed determines the lengths of it and of those that follow."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._left = int(self._generator.integers(*self.rounds, endpoint=True))
        self.agents = list(PLAYERS)
        nothing = np.zeros(2 * MOVES, np.float32)
        return {name: nothing.copy() for name in PLAYERS}, {name: {} for name in PLAYERS}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play a round."""
        red, blue = (int(actions[name]) for name in PLAYERS)
        self._left -= 1
        over = self._left == 0
        if over:
            self.agents = []
        won = {0: 0.0, 1: 1.0, 2: -1.0}[(red - blue) % MOVES]
        return (
            {"red": _seen(red, blue), "blue": _seen(blue, red)},
            {"red": won, "blue": -won},
            dict.fromkeys(PLAYERS, over),
            dict.fromkeys(PLAYERS, False),
            {name: {} for name in PLAYERS},
        )

    def state(self) -> State:
        """Return how many rounds are left, and the state of the generator."""
        return {
            "left": self._left,
            "agents": list(self.agents),
            "generator": freeze(self._generator.bit_generator.state),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._left, self.agents = state["left"], list(state["agents"])
        self._generator.bit_generator.state = thaw(state["generator"])

    def render(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _seen(own: int, others: int) -> NDArray[np.float32]:
    seen = np.zeros(2 * MOVES, np.float32)
    seen[own] = seen[MOVES + others] = 1
    return seen
