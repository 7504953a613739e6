"""The interface of environments with several agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium as gym


class ParallelEnv(Protocol):
    """Environment with several agents, as PettingZoo's parallel interface defines it."""

    @property
    def possible_agents(self) -> Sequence[str]:
        """Names of all agents that can take part."""

    @property
    def agents(self) -> Sequence[str]:
        """Names of the agents that act in the next step."""

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the observation space of one agent."""

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the action space of one agent."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Return `(observations, infos)`, dicts keyed by agent."""

    def step(self, actions: dict[str, Any]) -> Any:
        """Return `(observations, rewards, terminations, truncations, infos)`, dicts keyed by agent."""

    def render(self) -> Any:
        """Render a frame."""

    def close(self) -> None:
        """Release the environment's resources."""
