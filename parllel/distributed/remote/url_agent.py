"""An agent on a server, asked over HTTP with JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.remote_reply import (
    action_in,
    actions_in,
    patience_s,
    posted,
    printed_in,
)
from parllel.distributed.web.http_client import HttpClient, HttpError
from parllel.distributed.wire.json_text import json_bytes, parse_json
from parllel.distributed.wire.wire_error import WireError
from parllel.types import Closeable

INITIALIZE_S = 60.0


class UrlAgent(Closeable):
    """Ask the server at a URL to act.

    It must have an agent: requests name none, so that no server is asked to execute what another machine
    calls a path. `initialize` gives it one.

    Args:
        raw: the URL. It is used as given, its query included. The token of the server is its password,
            `http://:token@host:8081/`, which no message shows.
        environment_name: what the server is told to act in.
        session: of the server's agents, by name; None for its only one.

    Raises:
        ValueError: if it is no URL.

    Each call returns an action or an AgentFailure. Several threads may call it.
    """

    def __init__(self, raw: str, environment_name: str, *, session: str | None = None) -> None:
        self._client = HttpClient(raw)
        self._environment_name = environment_name
        self._headers = {"Content-Type": "application/json"}
        self._more = {} if session is None else {"session": session}

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return self._client.shown

    def __call__(self, observation: Any, configuration: Mapping[str, Any]) -> Any:
        """Return the action for an observation; waits for its time, what is left of overage, and a second."""
        return self.answers([observation], configuration)[0][0]

    def act_batch(self, observations: list[Any], configuration: Mapping[str, Any]) -> list[Any]:
        """Return an action or AgentFailure for each observation, by one request."""
        return self.answers(observations, configuration, batch=True)[0]

    def answers(
        self, observations: list[Any], configuration: Mapping[str, Any], *, batch: bool = False
    ) -> tuple[list[Any], str, str]:
        """Return the same, and what the agent printed if the server sends it: standard output and error.

        batch: whether to ask in the form for several observations; otherwise there must be one.
        """
        if batch:
            reply = self._act({"observations": observations}, observations, configuration)
        else:
            (only,) = observations
            reply = self._act({"state": {"observation": only}}, observations, configuration)
        n = len(observations)
        if isinstance(reply, AgentFailure):
            return [reply] * n, "", ""
        return actions_in(reply, n) if batch else [action_in(reply)], *printed_in(reply)

    def initialize(
        self,
        agents: list[Any],
        configuration: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = INITIALIZE_S,
    ) -> Any:
        """Let the server make an agent, and return its reply.

        agents: exactly one, as the server knows it: a path there, or a name.

        Raises:
            HttpError: if it cannot be asked, or refuses; says why.
            TimeoutError: if it does not answer in time.
        """
        given = dict(configuration or {})
        body = self._body({"action": "initialize_agents", "agents": agents, "configuration": given})
        status, reply = self._reply(body, timeout_s)
        if status != 200 or not isinstance(reply, Mapping) or "error" in reply:
            raise HttpError(f"{self.url}: {_refusal(status, reply)}")
        return reply

    def _act(
        self, asked: dict[str, Any], observations: list[Any], configuration: Mapping[str, Any]
    ) -> Any:
        try:
            body = self._body({"action": "act", "configuration": dict(configuration), **asked})
            status, reply = self._reply(body, patience_s(observations, configuration))
        except TimeoutError as error:
            return AgentFailure("TIMEOUT", str(error))
        except HttpError as error:
            return AgentFailure("ERROR", str(error))
        except WireError as error:
            return AgentFailure("ERROR", f"{self.url}: {error}")
        # With any other status there is no action, whatever the body says.
        if status != 200:
            return AgentFailure("ERROR", f"{self.url}: {_refusal(status, reply)}")
        return reply

    def _body(self, values: dict[str, Any]) -> bytes:
        return json_bytes({**values, "environment": self._environment_name, **self._more})

    def _reply(self, body: bytes, seconds: float) -> tuple[int, Any]:
        """Return the status of a reply, and the values that it holds."""
        reply = posted(self._client, body, self._headers, seconds)
        try:
            return reply.status, parse_json(reply.body)
        except WireError as error:
            if reply.status != 200:
                return reply.status, None
            raise WireError(f"answered with what is not JSON: {error}") from None

    def close(self) -> None:
        """Close its connections; may be called twice."""
        self._client.close()


def _refusal(status: int, reply: Any) -> str:
    said = reply.get("error") if isinstance(reply, Mapping) else None
    text = f": {said}" if said is not None else ""
    return f"answered with status {status}{text}"
