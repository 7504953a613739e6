"""An agent of an episode, wherever it acts."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from parllel.remote.agent_context import AgentContext
from parllel.remote.build_agent import build_agent
from parllel.remote.failure import AgentFailure
from parllel.types import Closing


class Agent(Closing):
    """Act for a specification, in time, and keep what goes wrong to itself.

    Args:
        raw: the specification, see `build_agent`.
        environment: what it acts in.
        memory_limit_bytes: for agents in processes of their own; None is no limit.

    Attributes:
        raw: the specification.
        kind: "proto", "builtin", "callable", "constant", "url", "run", "file" or "source".
    """

    def __init__(
        self, raw: Any, environment: AgentContext, *, memory_limit_bytes: int | None = None
    ) -> None:
        self.raw = raw
        self._environment = environment
        self._callable, self.kind = build_agent(raw, environment)
        self._lock = threading.Lock()

    def act(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        """Return the action for an observation, or an AgentFailure, and its log.

        The log has `duration` in seconds, and `stdout` and `stderr`, cut at `maxLogLength` characters.
        """
        actions, log = self.act_batch([observation])
        return actions[0], log

    def act_batch(self, observations: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return an action or AgentFailure for each observation, and the log of all."""
        began = perf_counter()
        actions: list[Any] = []
        with self._lock:
            for observation in observations:
                try:
                    actions.append(self._callable(observation, self._environment.configuration))
                except Exception as error:
                    actions.append(AgentFailure("ERROR", f"{type(error).__name__}: {error}"))
        return actions, {"duration": perf_counter() - began, "stdout": "", "stderr": ""}

    def close(self) -> None:
        """End its process, or close its connections; may be called twice."""
