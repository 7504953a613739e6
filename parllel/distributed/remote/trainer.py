"""Training interface of an environment from the perspective of one agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from parllel.distributed.remote.agent import Agent
from parllel.distributed.remote.attributes import with_attributes
from parllel.distributed.remote.episode_runner import EpisodeRunner, RunnableEnv
from parllel.errors import WrongStateError
from parllel.types import Closeable


class Trainable(RunnableEnv, Protocol):
    """The part of an `Environment` that a trainer uses."""

    @property
    def done(self) -> bool: ...

    def initialize_agents(self, agents: Sequence[Any]) -> list[Agent | None]: ...

    def runner(self, agents: Sequence[Agent | None]) -> EpisodeRunner: ...

    def reset(self, n_agents: int | None = None) -> Any: ...

    def step(self, actions: Sequence[Any], logs: Sequence[Any] = ()) -> Any: ...

    def release(self, found: Sequence[Agent | None], agents: Sequence[Any]) -> None: ...


class EnvTrainer(Closeable):
    """Steps an environment with the actions of one agent while the others act on their own.

    Args:
        environment: the environment, which records the steps and logs of the episode.
        agents: one agent per seat, with None for the agent being trained. Agents given as
            specifications are rebuilt for each episode.

    Raises:
        ValueError: unless exactly one of `agents` is None.
    """

    def __init__(self, environment: Trainable, agents: Sequence[Any]) -> None:
        free = [number for number, raw in enumerate(agents) if raw is None]
        if len(free) != 1:
            raise ValueError(
                f"train: expected None for exactly one agent, the one being trained, got {len(free)} of "
                f"{len(agents)}"
            )
        self._environment, self._raw = environment, list(agents)
        (self._seat,) = free
        self._reward: float | None = None
        self._runner: EpisodeRunner | None = None
        self._agents: list[Agent | None] = []

    def reset(self) -> Any:
        """Start an episode and return the agent's first observation, when it is its turn."""
        self.close()
        environment = self._environment
        self._agents = environment.initialize_agents(self._raw)
        self._runner = environment.runner(self._agents)
        environment.reset(len(self._raw))
        self._play_on()
        self._reward = self._state["reward"]
        return self._observation()

    def step(self, action: Any) -> tuple[Any, float | None, bool, dict[str, Any]]:
        """Play an action, then the other agents' actions until it is the agent's turn again.

        Returns:
            A tuple of the agent's next observation, the change of its reward (None if the agent
            failed), whether the episode is over for the agent, and the `info` of its state, such as
            the reason for a failure.

        Raises:
            WrongStateError: before `reset`, and once the agent's part is over.
        """
        if self._runner is None or self._state["status"] != "ACTIVE":
            raise WrongStateError("train: the episode is over or has not started; call reset")
        self._play(action)
        self._play_on()
        state, before = self._state, self._reward
        self._reward = reward = state["reward"]
        change = None if reward is None else reward - (before or 0)
        return self._observation(), change, state["status"] != "ACTIVE", dict(state["info"])

    def close(self) -> None:
        """Close the agents built for the episode. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
            self._environment.release(self._agents, self._raw)

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._environment.state[self._seat]
        return state

    def _observation(self) -> Any:
        return with_attributes(self._environment.observation(self._seat))

    def _play(self, action: Any = None) -> None:
        assert self._runner is not None
        actions, logs = self._runner.act()
        actions[self._seat] = action
        self._environment.step(actions, logs)

    def _play_on(self) -> None:
        """Play the other agents' actions until it is the agent's turn or its part is over."""
        while not self._environment.done and self._state["status"] == "INACTIVE":
            self._play()
