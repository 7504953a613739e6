"""Session of a server: an agent kept for a client."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parllel.distributed.remote.agent import Agent
from parllel.distributed.web.web_error import WebError
from parllel.types import Closeable

# Requests per agent that may hold a thread; all but one wait for the agent's lock. Without a limit, the
# clients of one slow agent would occupy the threads of all others.
MAX_ACTS = 8


class SessionContext:
    """Environment of a session's agent, an `AgentContext` without a game.

    Attributes:
        name, agents, debug: as in `AgentContext`.
        configuration: configuration from the latest request to act, because an agent may play
            several episodes.
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
    """Agent, the context it was built with, and the time of its last use.

    Args:
        known_as: text of the specification in the request that created the session. As text, 1 and
            true differ. "" if no request created it.
        agent: the agent, which is closed with the session.
        context: the context that the agent was built with.
    """

    def __init__(self, known_as: str, agent: Agent, context: SessionContext) -> None:
        self.known_as = known_as
        self.agent = agent
        self.context = context
        self.requested: str | None = None  # configuration of the latest request that had one
        # Guards the two below; held for moments only, never during an act.
        self._lock = threading.Lock()
        self._acts = 0  # requests that act or wait to
        self._used = time.monotonic()  # end of the last act

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Count a request that acts, within the limit of MAX_ACTS.

        Raises:
            WebError: 429, if there are too many such requests already.
        """
        with self._lock:
            if self._acts >= MAX_ACTS:
                message = f"the agent has {MAX_ACTS} pending requests; try again later"
                raise WebError(429, message, ((b"retry-after", b"1"),))
            self._acts += 1
        try:
            yield
        finally:
            # Both under one lock: in between, a session that was busy for long would look idle for as long,
            # and the reaper would close it.
            with self._lock:
                self._acts -= 1
                self._used = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last use; 0 while in use."""
        with self._lock:
            return 0.0 if self._acts else time.monotonic() - self._used

    def close(self) -> None:
        """Close the agent, even while it acts. Idempotent."""
        self.agent.close()
