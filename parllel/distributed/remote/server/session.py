"""One agent that a server holds for a client."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parllel.distributed.remote.agent import Agent
from parllel.distributed.web.web_error import WebError
from parllel.types import Closeable

# Requests that one agent may have in threads at a time: all but one wait for it. Without a limit, the clients
# of one slow agent would take the threads of all others.
MAX_ACTS = 8


class SessionContext:
    """What the agent of a session knows of its environment.

    Attributes:
        name, agents, debug: as in `AgentContext`.
        configuration: of the latest request to act, as an agent may play several episodes.
    """

    def __init__(
        self,
        name: str,
        configuration: dict[str, Any],
        agents: Mapping[str, Callable[..., Any]],
        debug: bool,
    ) -> None:
        self.name = name
        self.configuration = configuration
        self.agents = agents
        self.debug = debug


class Session(Closeable):
    """An agent, the environment that it was made for, and when it was last used.

    Args:
        known_as: the specification in the request that made it, as text, in which 1 and true differ; "" if no
            request did.
        agent: closed with the session.
        context: what it was made with.
    """

    def __init__(self, known_as: str, agent: Agent, context: SessionContext) -> None:
        self.known_as = known_as
        self.agent = agent
        self.context = context
        self.asked: str | None = None  # the configuration of the latest request that had one
        self._lock = threading.Lock()
        self._acts = 0
        self._used = time.monotonic()

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Hold one of the places of requests that act.

        Raises:
            WebError: 429, if all are taken.
        """
        with self._lock:
            if self._acts >= MAX_ACTS:
                message = f"the agent has {MAX_ACTS} requests to answer already; try again later"
                raise WebError(429, message, ((b"retry-after", b"1"),))
            self._acts += 1
        try:
            yield
        finally:
            # Both at once: in between, a session that was busy for long would seem to be idle for as long.
            with self._lock:
                self._acts -= 1
                self._used = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since it was last used; 0 while it is in use."""
        with self._lock:
            return 0.0 if self._acts else time.monotonic() - self._used

    def close(self) -> None:
        """End the agent, even while it acts; idempotent."""
        self.agent.close()
