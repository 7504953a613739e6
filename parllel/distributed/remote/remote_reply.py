"""What a server is asked, and what its reply to `act` means."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.web.http_client import HttpClient, HttpError, HttpResponse

_LATE = "DeadlineExceeded"
_RAISED = "BaseException::"
_NO_ACTION = 'answered without "action"'
_EXTRA_S = 1.0  # of a client, for the way there and back
_STATUSES = ("ERROR", "TIMEOUT", "INVALID")
_MAX_INDEX = 9  # digits


def posted(
    client: HttpClient, body: bytes, headers: Mapping[str, str], seconds: float
) -> HttpResponse:
    """Return the reply to a POST, see `HttpClient.post`; a redirect is an HttpError too."""
    reply = client.post(body, headers, seconds)
    if 300 <= reply.status < 400:
        raise HttpError(
            f"{client.shown}: answered with a redirect ({reply.status}), which is not followed"
        )
    return reply


def action_in(reply: Any) -> Any:
    """Return the action that a reply holds, or an AgentFailure.

    An action "DeadlineExceeded", or one that begins with "BaseException::", is how every server reports a
    failure; `status` and `reason` beside it say more.
    """
    if not isinstance(reply, Mapping):
        return AgentFailure("ERROR", f"answered with {type(reply).__name__} instead of an object")
    # First: where there is an error, an action beside it would be a default in disguise.
    if "error" in reply:
        return AgentFailure("ERROR", f"answered: {_said(reply['error'])}")
    status = reply.get("status")
    # Of the type first, here and below: protobuf has arrays, and `==` with one is another array.
    if status is not None and not isinstance(status, str):
        return AgentFailure(
            "ERROR", f'answered with a "status" that is no text: {reprlib.repr(status)}'
        )
    if status in _STATUSES:
        return AgentFailure(status, _said(reply.get("reason", "without a reason")))
    if "action" not in reply:
        return AgentFailure("ERROR", _NO_ACTION)
    return _read(reply["action"])


def actions_in(reply: Any, n: int) -> list[Any]:
    """Return the actions, or AgentFailures, that the reply to a batch holds."""
    actions = reply.get("actions") if isinstance(reply, Mapping) else None
    if not isinstance(actions, list) or len(actions) != n:
        one = action_in(reply)
        if not isinstance(one, AgentFailure) or one.reason == _NO_ACTION:
            one = AgentFailure("ERROR", f'answered without {n} "actions"')
        return [one] * n
    failures = reply.get("failures")
    found = [_read(action) for action in actions]
    for index, failure in failures.items() if isinstance(failures, Mapping) else ():
        place = str(index)
        # No longer, as Python does not read ints of thousands of digits.
        known = len(place) <= _MAX_INDEX and place.isdecimal() and int(place) < n
        if known and isinstance(failure, Mapping):
            found[int(place)] = action_in({"action": None, "status": "ERROR", **failure})
    return found


def _read(action: Any) -> Any:
    if not isinstance(action, str):
        return action
    if action == _LATE:
        return AgentFailure("TIMEOUT", "its server says that it was too late")
    if action.startswith(_RAISED):
        return AgentFailure("ERROR", action.removeprefix(_RAISED) or "raised an exception")
    return action


def _said(value: Any) -> str:
    """Return what a server says as text; it may be of any kind and size."""
    return value if isinstance(value, str) else reprlib.repr(value)


def printed_in(reply: Any) -> tuple[str, str]:
    """Return what the agent has printed, standard output and standard error, as far as the server says it."""
    log = reply.get("log") if isinstance(reply, Mapping) else None
    texts = [log.get(name) if isinstance(log, Mapping) else None for name in ("stdout", "stderr")]
    out, error = (text if isinstance(text, str) else "" for text in texts)
    return out, error


def patience_s(observations: list[Any], configuration: Mapping[str, Any]) -> float:
    """Return how long to wait for a reply: the time of all acts, what is left of overage, and a second."""
    return act_seconds(observations, configuration) + _EXTRA_S


def act_seconds(
    observations: list[Any], configuration: Mapping[str, Any], overage_s: float = 0.0
) -> float:
    """Return how long acting for observations may take.

    overage_s: what may be used up beyond `actTimeout` where observations do not say it.
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
