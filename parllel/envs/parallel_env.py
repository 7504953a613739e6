"""What an environment with several agents must have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium as gym


class ParallelEnv(Protocol):
    """The interface that an environment with several agents must have, as PettingZoo's parallel ones do."""

    @property
    def possible_agents(self) -> Sequence[str]:
        """The names of all agents that can take part."""

    @property
    def agents(self) -> Sequence[str]:
        """The names of those that act in the next step."""

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the space of one agent."""

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the space of one agent."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Return `(observations, infos)`, by agent."""

    def step(self, actions: dict[str, Any]) -> Any:
        """Return `(observations, rewards, terminations, truncations, infos)`, by agent."""

    def render(self) -> Any:
        """Return a picture."""

    def close(self) -> None:
        """Release what the environment holds."""
