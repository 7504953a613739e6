"""Concurrent collection of the agents' actions for one step::

    EpisodeRunner.act                                    each ACTIVE agent
    observation of each  --- one thread per agent --->   Agent.act: here, in a process, on a server
    actions, logs        <-- when the last is done ---

The first of them runs in the calling thread. A step takes as long as its slowest agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from parllel.distributed.remote.agent import Agent
from parllel.errors import ClosedError
from parllel.types import Closeable

# Agents that answer faster than a thread could start them.
_QUICK = ("builtin", "constant")


class RunnableEnv(Protocol):
    """The part of an `Environment` that a runner reads."""

    @property
    def configuration(self) -> dict[str, Any]: ...

    @property
    def state(self) -> list[dict[str, Any]]: ...

    def observation(self, number: int) -> dict[str, Any]:
        """Return the observation of one agent."""


class EpisodeRunner(Closeable):
    """Collects the actions of an environment's agents.

    Args:
        environment: the environment they act in.
        agents: one agent per seat, or None for an empty seat. They are not closed.

    Attributes:
        cut_short: seats whose agents got less than their full time in the last `act`, because the
            episode's time was running out.
    """

    def __init__(self, environment: RunnableEnv, agents: Sequence[Agent | None]) -> None:
        self._environment = environment
        self._agents = list(agents)
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self.cut_short: set[int] = set()

    def act(self, within_s: float | None = None) -> tuple[list[Any], list[dict[str, Any]]]:
        """Return the action and the log of each agent, or None and {} for agents that do not act.

        within_s: time left for the episode in seconds. No agent gets more, except that each gets at
            least `actTimeout`.
        """
        if self._closed:
            raise ClosedError("EpisodeRunner: used after close()")
        state = self._environment.state
        acting = {
            number: agent
            for number, agent in enumerate(self._agents)
            if agent is not None and state[number]["status"] == "ACTIVE"
        }
        self.cut_short.clear()
        observations = {number: self._observation(number, within_s) for number in acting}
        # An agent in two seats acts for them one after the other, under its own lock.
        slow = [n for n, agent in acting.items() if agent.kind not in _QUICK]
        results: dict[int, tuple[Any, dict[str, Any]]] = {}
        # All but the first go to threads before this thread starts with its own, so that they overlap.
        futures = {n: self._submit(acting[n], observations[n]) for n in slow[1:]}
        for number, agent in acting.items():
            if number not in futures:
                results[number] = agent.act(observations[number])
        # No time limit here: acts have their own, and a function in this process could not be interrupted.
        results.update({number: future.result() for number, future in futures.items()})
        actions = [results[n][0] if n in results else None for n in range(len(self._agents))]
        logs = [results[n][1] if n in results else {} for n in range(len(self._agents))]
        return actions, logs

    def _observation(self, number: int, within_s: float | None) -> dict[str, Any]:
        observation = self._environment.observation(number)
        if within_s is not None:
            # An agent may use actTimeout plus its overage, with which it could outlast the episode.
            most_s = max(0.0, within_s - self._environment.configuration["actTimeout"])
            if observation["remainingOverageTime"] > most_s:
                observation["remainingOverageTime"] = round(most_s, 6)
                self.cut_short.add(number)
        return observation

    def _submit(self, agent: Agent, observation: dict[str, Any]) -> Any:
        # Created on first use, as episodes between built-in agents need no threads.
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self._agents), "agent")
        return self._threads.submit(agent.act, observation)

    def close(self) -> None:
        """Wait for agents that still act and stop the threads. Idempotent."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown()
