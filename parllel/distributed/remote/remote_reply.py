"""Requests to agent servers and the interpretation of their replies."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.web.http_client import HttpClient, HttpError, HttpResponse

_LATE = "DeadlineExceeded"
_RAISED = "BaseException::"
_NO_ACTION = 'answered without "action"'
_EXTRA_S = 1.0  # a client's allowance for the network
_STATUSES = ("ERROR", "TIMEOUT", "INVALID")
_MAX_INDEX = 9  # digits


def posted(
    client: HttpClient, body: bytes, headers: Mapping[str, str], seconds: float
) -> HttpResponse:
    """Send a POST and return the reply, as `HttpClient.post`. Raises HttpError for a redirect as well."""
    reply = client.post(body, headers, seconds)
    if 300 <= reply.status < 400:
        raise HttpError(
            f"{client.shown}: answered with a redirect ({reply.status}), which is not followed"
        )
    return reply


def action_in(reply: Any) -> Any:
    """Return the action in a reply, or an AgentFailure.

    All servers report failures by the action "DeadlineExceeded" or one that starts with "BaseException::".
    `status` and `reason` next to it give details.
    """
    if not isinstance(reply, Mapping):
        return AgentFailure("ERROR", f"answered with {type(reply).__name__} instead of an object")
    # Checked first: an action next to an error could only be a default.
    if "error" in reply:
        return AgentFailure("ERROR", f"answered: {_text_of(reply['error'])}")
    status = reply.get("status")
    # By type first, here and below: values from protobuf may be arrays, and `==` with one is an array.
    if status is not None and not isinstance(status, str):
        return AgentFailure(
            "ERROR", f'answered with a "status" that is not text: {reprlib.repr(status)}'
        )
    if status in _STATUSES:
        return AgentFailure(status, _text_of(reply.get("reason", "without a reason")))
    if "action" not in reply:
        return AgentFailure("ERROR", _NO_ACTION)
    return _read(reply["action"])


def actions_in(reply: Any, n: int) -> list[Any]:
    """Return the actions or AgentFailures in the reply to a batch of `n` observations."""
    actions = reply.get("actions") if isinstance(reply, Mapping) else None
    if not isinstance(actions, list) or len(actions) != n:
        failure = action_in(reply)
        if not isinstance(failure, AgentFailure) or failure.reason == _NO_ACTION:
            failure = AgentFailure("ERROR", f'answered without {n} "actions"')
        return [failure] * n
    failures = reply.get("failures")
    found = [_read(action) for action in actions]
    for index, failure in failures.items() if isinstance(failures, Mapping) else ():
        place = str(index)
        # Bounded, since Python refuses to parse ints of thousands of digits.
        known = len(place) <= _MAX_INDEX and place.isdecimal() and int(place) < n
        if known and isinstance(failure, Mapping):
            found[int(place)] = action_in({"action": None, "status": "ERROR", **failure})
    return found


def _read(action: Any) -> Any:
    if not isinstance(action, str):
        return action
    if action == _LATE:
        return AgentFailure("TIMEOUT", "its server reports that it exceeded its time")
    if action.startswith(_RAISED):
        return AgentFailure("ERROR", action.removeprefix(_RAISED) or "raised an exception")
    return action


def _text_of(value: Any) -> str:
    """Return a server's message as text. It may have any type and size."""
    return value if isinstance(value, str) else reprlib.repr(value)


def printed_in(reply: Any) -> tuple[str, str]:
    """Return the agent's standard output and standard error, if the server sends them."""
    log = reply.get("log") if isinstance(reply, Mapping) else None
    texts = [log.get(name) if isinstance(log, Mapping) else None for name in ("stdout", "stderr")]
    out, error = (text if isinstance(text, str) else "" for text in texts)
    return out, error


def patience_s(observations: list[Any], configuration: Mapping[str, Any]) -> float:
    """Return how long a client waits for a reply: the time limit of the acts plus one second."""
    return act_seconds(observations, configuration) + _EXTRA_S


def act_seconds(
    observations: list[Any], configuration: Mapping[str, Any], overage_s: float = 0.0
) -> float:
    """Return the time limit for acting on observations.

    It is `actTimeout` for each observation, plus the largest overage time among them.

    overage_s: overage time for observations without `remainingOverageTime`.
    """
    left = [
        observation.get("remainingOverageTime", overage_s)
        for observation in observations
        if isinstance(observation, Mapping)
    ]
    each_s = _seconds(configuration.get("actTimeout"), 1.0)
    return each_s * len(observations) + max(
        (_seconds(value, overage_s) for value in left), default=overage_s
    )


def _seconds(value: Any, default: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e7:
        return float(value)
    return default
