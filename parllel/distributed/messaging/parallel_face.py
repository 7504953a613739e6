"""PettingZoo's parallel interface to an environment of agents."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym

from parllel.distributed.messaging.env_state import whole_state
from parllel.envs.states.env_state import load_env_state
from parllel.types import State


class RootsEnv(Protocol):
    """A KafkaMultiAgentEnv, as its face sees it."""

    root_agents: list[str]
    env_id: str

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""

    def step_roots(self, actions: dict[str, Any]) -> Any:
        """Step, and return a StepResult."""

    def close(self) -> None:
        """Close it."""


class ParallelFace:
    """The roots of an environment as PettingZoo's agents; all begin and end together.

    It needs no PettingZoo, and goes into a cage by `parllel.envs.ParallelEnvAdapter`.

    Raises:
        ValueError: if a root has no space.
    """

    render_mode = None

    def __init__(self, env: Any) -> None:
        self.env: RootsEnv = env
        self.metadata = {"name": type(env).__name__, "render_modes": [], "is_parallelizable": True}
        self.possible_agents: list[str] = list(env.root_agents)
        self.agents: list[str] = []
        self.observation_spaces = {
            root: _space(env, root, "observation") for root in self.possible_agents
        }
        self.action_spaces = {root: _space(env, root, "action") for root in self.possible_agents}

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the observation space of a root; always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the action space of a root; always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; return observations and infos by root."""
        observations, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return observations, {root: {} for root in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return observations, rewards, terminations, truncations and infos by root."""
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
        """Take back what `state` returned."""
        load_env_state(self.env, state["env"])
        self.agents = list(state["agents"])

    @property
    def unwrapped(self) -> ParallelFace:
        """Return this object."""
        return self

    def render(self) -> None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _space(env: Any, root: str, kind: str) -> gym.Space[Any]:
    space: gym.Space[Any] | None = getattr(env.agents[root], f"{kind}_space")
    if space is None:
        raise ValueError(
            f"environment {env.env_id!r}: root {root!r} has no {kind}_space; give the agent one"
        )
    return space
