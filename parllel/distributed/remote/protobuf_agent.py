"""Agents on a server that speaks protobuf over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.proto.messages import read_response, request_bytes
from parllel.distributed.remote.remote_reply import action_in, patience_s, posted, printed_in
from parllel.distributed.web.http_client import HttpClient, HttpError, HttpResponse
from parllel.distributed.wire.json_text import parse_json
from parllel.distributed.wire.wire_error import WireError
from parllel.types import Closeable

CONTENT_TYPE = "application/x-protobuf"
ENDPOINT = "process_turn"


class ProtobufAgent(Closeable):
    """Agent on the server at a URL, called by `process_turn(observation, configuration)`. Thread-safe.

    A call returns an action or an AgentFailure. Floats are sent with 32 bits.

    Args:
        raw: a dict with "type": "proto" or "proto_config", and the URL as "url" or in "proto_config".
        environment_name: name of the environment for error messages.
        session: name of one of the server's agents. None if it has only one.

    Raises:
        ValueError: if there is no URL.
    """

    def __init__(
        self, raw: Mapping[str, Any], environment_name: str, *, session: str | None = None
    ) -> None:
        self._client = HttpClient(url_of(raw))
        self._environment_name = environment_name
        self._headers = {"Content-Type": CONTENT_TYPE}
        if session is not None:
            self._headers["Parllel-Session"] = session

    @property
    def url(self) -> str:
        """URL without user and password."""
        return self._client.shown

    def __call__(self, observation: Any, configuration: Mapping[str, Any]) -> Any:
        """Return the action for an observation. Waits for `actTimeout`, the overage left, and one second."""
        return self.answers([observation], configuration)[0][0]

    def answers(
        self, observations: list[Any], configuration: Mapping[str, Any]
    ) -> tuple[list[Any], str, str]:
        """Return an action or AgentFailure for each observation, and the agent's output."""
        replies = [self._act(observation, configuration) for observation in observations]
        actions = [r if isinstance(r, AgentFailure) else action_in(r) for r in replies]
        printed = [printed_in(reply) for reply in replies]
        return actions, "".join(out for out, _ in printed), "".join(error for _, error in printed)

    def _act(self, observation: Any, configuration: Mapping[str, Any]) -> Any:
        seconds = patience_s([observation], configuration)
        try:
            body = request_bytes(ENDPOINT, [observation, dict(configuration)], {})
            reply = posted(self._client, body, self._headers, seconds)
            if reply.status != 200:
                return AgentFailure("ERROR", f"{self.url}: {_refusal(reply)}")
            return read_response(reply.body)
        except TimeoutError as error:
            return AgentFailure("TIMEOUT", str(error))
        except HttpError as error:
            return AgentFailure("ERROR", str(error))
        except WireError as error:
            return AgentFailure("ERROR", f"{self.url}: {error}")

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()


def url_of(raw: Mapping[str, Any]) -> str:
    """Return the URL of a protobuf specification.

    Raises:
        ValueError: if there is no URL, or two different ones.
    """
    config = raw.get("proto_config")
    inner = config.get("url") if isinstance(config, Mapping) else None
    given = raw.get("url")
    if given and inner and given != inner:
        raise ValueError(
            'protobuf agent: expected one URL, got different URLs in "url" and in "proto_config"'
        )
    url = given or inner
    if not isinstance(url, str) or not url:
        raise ValueError(
            'protobuf agent: expected a URL in "url", or in the "url" of "proto_config", got '
            "neither"
        )
    return url


def _refusal(reply: HttpResponse) -> str:
    """Describe a reply whose status is not 200."""
    error = None
    try:
        is_protobuf = reply.content_type == CONTENT_TYPE
        value = read_response(reply.body) if is_protobuf else parse_json(reply.body)
        error = value.get("error") if isinstance(value, Mapping) else None
    except WireError:
        pass
    return f"answered with status {reply.status}" + ("" if error is None else f": {error}")
