"""A multi-agent environment whose numbers identify the step and agent that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.testing.dummy_envs import action_number

INF = np.inf


class CountingParallelEnv:
    """PettingZoo-style parallel environment that counts the steps of each episode.

    Agent number i observes `[100 i + step, step / 2, ...]`, i + 2 numbers in float32. Its reward is
    `10 i + step + action_number(action) / 8`. Those with even i choose one of 3, the others act in
    [-1, 1]^2. Info holds "step". Actions are kept in `actions`, seeds of resets in `seeds`.

    Args:
        lives: steps until each agent is gone, by name.
        ends: "terminated" or "truncated", by name; terminated if not named.

    Raises:
        RuntimeError: when stepped with actions of other agents than the present ones.
    """

    def __init__(
        self, lives: Mapping[str, int], ends: Mapping[str, str] | None = None, **metadata: Any
    ) -> None:
        self.metadata = {"name": "counting_v0", "render_modes": ["rgb_array"], **metadata}
        self.render_mode = "rgb_array"
        self.lives = dict(lives)
        self.ends = {**dict.fromkeys(lives, "terminated"), **(ends or {})}
        self.possible_agents = list(lives)
        self.agents: list[str] = []
        self.actions: list[dict[str, Any]] = []
        self.seeds: list[int | None] = []
        self.closed = 0
        self._step = 0
        # Of different sizes and kinds, so that what belongs to one agent does not fit another.
        self._spaces = {
            name: (
                spaces.Box(-INF, INF, (i + 2,), np.float32),
                spaces.Box(-1, 1, (2,), np.float32) if i % 2 else spaces.Discrete(3),
            )
            for i, name in enumerate(lives)
        }

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the space of one agent."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the space of one agent."""
        return self._spaces[agent][1]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode with all agents."""
        self.seeds.append(seed)
        self._step = 0
        self.agents = list(self.possible_agents)
        return self._observations(self.agents), {name: {"step": 0} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Count a step; agents whose episode is over leave."""
        # Those who leave in this step still get an observation and a reward, as in PettingZoo.
        there = self.agents
        if set(actions) != set(there):
            raise RuntimeError(f"expected actions of {there}, got those of {sorted(actions)}")
        self.actions.append(actions)
        self._step += 1
        over = {name: self._step == self.lives[name] for name in there}
        flags = [
            {name: over[name] and self.ends[name] == end for name in there}
            for end in ("terminated", "truncated")
        ]
        rewards = {
            name: counting_reward(self.possible_agents.index(name), self._step, actions[name])
            for name in there
        }
        self.agents = [name for name in there if not over[name]]
        infos = {name: {"step": self._step} for name in there}
        return self._observations(there), rewards, *flags, infos

    def _observations(self, names: list[str]) -> dict[str, Any]:
        return {
            name: counting_observation(self.possible_agents.index(name), self._step)
            for name in names
        }

    def render(self) -> Any:
        """Return a picture [2, 2, 3] uint8, filled with the number of the step."""
        return np.full((2, 2, 3), self._step % 256, np.uint8)

    def close(self) -> None:
        """Count the calls in `closed`."""
        self.closed += 1


def counting_observation(i: int, step: int) -> NDArray[np.float32]:
    """Return the observation of agent number `i` of a `CountingParallelEnv` after `step` steps."""
    numbers = np.full(i + 2, step / 2, np.float32)
    numbers[0] = 100 * i + step
    return numbers


def counting_reward(i: int, step: int, action: Any) -> float:
    """Return the reward of agent number `i` for the `step`-th step of an episode, counted from 1."""
    return 10 * i + step + action_number(action) / 8
