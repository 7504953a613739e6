"""Agents on a server that speaks JSON over HTTP."""

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
    """Agent on the server at a URL. Thread-safe; a call returns an action or an AgentFailure.

    The server must have an agent already, or get one by `initialize`. Requests to act name none, so that no
    server executes a path of another machine.

    Args:
        raw: the URL, used unchanged, including its query. The server's token is the password in it,
            `http://:token@host:8081/`, which no message shows.
        environment_name: the environment named in requests.
        session: name of one of the server's agents. None if it has only one.

    Raises:
        ValueError: for an invalid URL.
    """

    def __init__(self, raw: str, environment_name: str, *, session: str | None = None) -> None:
        self._client = HttpClient(raw)
        self._environment_name = environment_name
        self._headers = {"Content-Type": "application/json"}
        self._more = {} if session is None else {"session": session}

    @property
    def url(self) -> str:
        """URL without user and password."""
        return self._client.shown

    def __call__(self, observation: Any, configuration: Mapping[str, Any]) -> Any:
        """Return the action for an observation. Waits for `actTimeout`, the overage left, and one second."""
        return self.answers([observation], configuration)[0][0]

    def act_batch(self, observations: list[Any], configuration: Mapping[str, Any]) -> list[Any]:
        """Return an action or AgentFailure for each observation, in one request."""
        return self.answers(observations, configuration, batch=True)[0]

    def answers(
        self, observations: list[Any], configuration: Mapping[str, Any], *, batch: bool = False
    ) -> tuple[list[Any], str, str]:
        """Like `act_batch`, but also return the agent's output, if the server sends it.

        batch: whether to use the request for several observations. If False, there must be exactly
            one observation.
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
        """Ask the server to build an agent. Returns the server's reply.

        agents: list of exactly one specification, with paths and names on the server's machine.

        Raises:
            HttpError: if the server cannot be reached or refuses the request. Gives the reason.
            TimeoutError: if the server does not answer in time.
        """
        given = dict(configuration or {})
        body = self._body({"action": "initialize_agents", "agents": agents, "configuration": given})
        status, reply = self._reply(body, timeout_s)
        if status != 200 or not isinstance(reply, Mapping) or "error" in reply:
            raise HttpError(f"{self.url}: {_refusal(status, reply)}")
        return reply

    def _act(
        self, request: dict[str, Any], observations: list[Any], configuration: Mapping[str, Any]
    ) -> Any:
        try:
            body = self._body({"action": "act", "configuration": dict(configuration), **request})
            status, reply = self._reply(body, patience_s(observations, configuration))
        except TimeoutError as error:
            return AgentFailure("TIMEOUT", str(error))
        except HttpError as error:
            return AgentFailure("ERROR", str(error))
        except WireError as error:
            return AgentFailure("ERROR", f"{self.url}: {error}")
        # Any other status means that there is no action, whatever the body contains.
        if status != 200:
            return AgentFailure("ERROR", f"{self.url}: {_refusal(status, reply)}")
        return reply

    def _body(self, values: dict[str, Any]) -> bytes:
        return json_bytes({**values, "environment": self._environment_name, **self._more})

    def _reply(self, body: bytes, seconds: float) -> tuple[int, Any]:
        """Send a request; return status and values of the reply."""
        reply = posted(self._client, body, self._headers, seconds)
        try:
            return reply.status, parse_json(reply.body)
        except WireError as error:
            if reply.status != 200:
                return reply.status, None
            raise WireError(f"answered with invalid JSON: {error}") from None

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()


def _refusal(status: int, reply: Any) -> str:
    error = reply.get("error") if isinstance(reply, Mapping) else None
    text = f": {error}" if error is not None else ""
    return f"answered with status {status}{text}"
