"""A multi-agent environment with messages as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from parllel.distributed.messaging.env_state import whole_state
from parllel.envs.states.env_state import load_env_state
from parllel.types import State


class KafkaParallelEnv:
    """PettingZoo parallel environment whose agents are the roots, or the trained agents.

    All of them begin and end their episodes together. PettingZoo need not be installed. Use
    `parllel.envs.ParallelEnvAdapter` to put it into a cage.

    Args:
        env: a KafkaMultiAgentEnv.

    Raises:
        ValueError: if one of them lacks a space.
    """

    render_mode = None

    def __init__(self, env: Any) -> None:
        self.env = env
        self.metadata = {"name": type(env).__name__, "render_modes": [], "is_parallelizable": True}
        self.possible_agents: list[str] = list(env.policy_agents)
        self.agents: list[str] = []
        self.observation_spaces = {
            name: _space(env, name, "observation") for name in self.possible_agents
        }
        self.action_spaces = {name: _space(env, name, "action") for name in self.possible_agents}

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the observation space of an agent, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the action space of an agent, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode. Returns observations and infos, keyed by agent."""
        observations, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return observations, {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Step all agents. Returns PettingZoo's five dicts, keyed by agent."""
        result = self.env.step_roots(actions)
        terminations = dict.fromkeys(self.possible_agents, result.terminated)
        truncations = dict.fromkeys(self.possible_agents, result.truncated)
        if result.terminated or result.truncated:
            self.agents = []
        return result.observations, result.rewards, terminations, truncations, result.infos

    def state(self) -> State:
        """Return the state of the environment."""
        return {"env": whole_state(self.env), "agents": list(self.agents)}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        load_env_state(self.env, state["env"])
        self.agents = list(state["agents"])

    @property
    def unwrapped(self) -> KafkaParallelEnv:
        """Return this object."""
        return self

    def render(self) -> None:
        """Return None, as there is nothing to render."""

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _space(env: Any, name: str, kind: str) -> gym.Space[Any]:
    space: gym.Space[Any] | None = getattr(env.agents[name], f"{kind}_space")
    if space is None:
        raise ValueError(
            f"environment {env.env_id!r}: agent {name!r} has no {kind}_space; pass one to the agent"
        )
    return space
