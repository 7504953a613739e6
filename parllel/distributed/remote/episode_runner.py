"""Ask agents for their actions, those of one step at the same time.

    EpisodeRunner.act                                        each agent that is ACTIVE
    observation of each  --- one thread for each but one -->  Agent.act: here, in a process, behind a URL
    actions, logs        <---- when the last has answered --

A step takes as long as its slowest agent; each has its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from parllel.distributed.remote.agent import Agent
from parllel.errors import ClosedError
from parllel.types import Closeable

# They answer at once, so that a thread would take longer.
_QUICK = ("builtin", "constant")


class RunnableEnv(Protocol):
    """What a runner reads of an environment."""

    @property
    def configuration(self) -> dict[str, Any]: ...

    @property
    def state(self) -> list[dict[str, Any]]: ...

    def observation(self, number: int) -> dict[str, Any]:
        """Return what one agent observes."""


class EpisodeRunner(Closeable):
    """Let agents act in an environment.

    Args:
        environment: that they act in.
        agents: of each seat, None where there is none. They are not closed.

    Attributes:
        cut_short: seats whose agents had less than their own time in the last `act`, as the episode's ended.
    """

    def __init__(self, environment: RunnableEnv, agents: Sequence[Agent | None]) -> None:
        self._environment = environment
        self._agents = list(agents)
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self.cut_short: set[int] = set()

    def act(self, within_s: float | None = None) -> tuple[list[Any], list[dict[str, Any]]]:
        """Return the action and the log of each agent; None and {} of those that do not act.

        within_s: what is left of the episode's time; none of them gets more, except that `actTimeout` is
            always theirs.
        """
        if self._closed:
            raise ClosedError("EpisodeRunner: used after it was closed")
        state = self._environment.state
        acting = {
            number: agent
            for number, agent in enumerate(self._agents)
            if agent is not None and state[number]["status"] == "ACTIVE"
        }
        self.cut_short.clear()
        observations = {number: self._observation(number, within_s) for number in acting}
        # An agent that sits in two seats acts for one after the other: it locks itself.
        apart = [n for n, agent in acting.items() if agent.kind not in _QUICK]
        results: dict[int, tuple[Any, dict[str, Any]]] = {}
        # One of them, or the only one, acts in this thread.
        futures = {n: self._submit(acting[n], observations[n]) for n in apart[1:]}
        for number, agent in acting.items():
            if number not in futures:
                results[number] = agent.act(observations[number])
        # Without a limit: acts have their own, and functions in this process could not be ended anyway.
        results.update({number: future.result() for number, future in futures.items()})
        actions = [results[n][0] if n in results else None for n in range(len(self._agents))]
        logs = [results[n][1] if n in results else {} for n in range(len(self._agents))]
        return actions, logs

    def _observation(self, number: int, within_s: float | None) -> dict[str, Any]:
        observation = self._environment.observation(number)
        if within_s is not None:
            # An agent has actTimeout and this, and would otherwise outlast the episode.
            most_s = max(0.0, within_s - self._environment.configuration["actTimeout"])
            if observation["remainingOverageTime"] > most_s:
                observation["remainingOverageTime"] = round(most_s, 6)
                self.cut_short.add(number)
        return observation

    def _submit(self, agent: Agent, observation: dict[str, Any]) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self._agents), "agent")
        return self._threads.submit(agent.act, observation)

    def close(self) -> None:
        """Wait for those that still act, and end the threads; may be called twice."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown()
