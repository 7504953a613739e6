"""HTTP interface of an agent server: requests and replies in JSON and protobuf."""

from __future__ import annotations

from typing import Any

from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.proto.messages import read_request, response_bytes
from parllel.distributed.remote.server.actions import Actions
from parllel.distributed.web.app import App, Route, build_app
from parllel.distributed.web.request import Request, Response
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError
from parllel.distributed.wire.wire_error import WireError

PROTOBUF = "application/x-protobuf"
SESSION = "Parllel-Session"  # header
_ENDPOINT = "process_turn"
_AGENTS = "agents[]"  # in a query
_OTHER_PLACE = {"agents": f"{_AGENTS} of the query", "session": f"header {SESSION}"}
_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"


def build_server(
    settings: ServerSettings | None = None, actions: Actions | None = None, *, ready: bool = True
) -> App:
    """Build an application that serves agents and plays episodes.

    actions: the actions that clients can request. The caller closes them after the server.
    """
    wire = _Wire(actions or Actions())
    handlers = {"GET": wire.get, "POST": wire.post}
    return build_app([Route("/", handlers, ("application/json", PROTOBUF))], settings, ready=ready)


class _Wire:
    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    def get(self, request: Request) -> Any:
        """Answer `list`, the only action without effects."""
        if request.query.get("action", "list") != "list":
            raise WebError(405, "GET supports only the action list; use POST")
        return self._actions.action_list({})

    def post(self, request: Request) -> Response:
        """Answer one action."""
        if request.content_type == PROTOBUF:
            try:
                return self._proto(request)
            except WebError as error:
                return _proto_reply({"error": str(error)}, error.status)
        args = request.json()
        if not isinstance(args, dict):
            raise WebError(400, "expected a JSON object with the field action")
        for field, value in (
            ("session", request.header(SESSION)),
            ("agents", _agents_of_query(request)),
        ):
            if value is not None and args.setdefault(field, value) != value:
                if args[field] is not None:
                    raise WebError(400, f"{_OTHER_PLACE[field]}: differs from {field} in the body")
                args[field] = value
        return _json_reply(self._actions.handle(args), args)

    def _proto(self, request: Request) -> Response:
        """Answer a turn in protobuf, errors included."""
        try:
            return _proto_reply(self._turn(request))
        except WebError as error:
            return _proto_reply({"error": str(error)}, error.status)
        except WireError as error:
            return _proto_reply({"error": str(error)}, 400)

    def _turn(self, request: Request) -> dict[str, Any]:
        if _agents_of_query(request) is not None:
            message = f"{_AGENTS}: a turn names no environment; use the JSON action act"
            raise WebError(400, message)
        name, values, named = read_request(request.body, request.limits)
        if name != _ENDPOINT:
            raise WebError(404, f"expected the endpoint {_ENDPOINT}")
        given = dict(zip(("observation", "configuration"), values, strict=False))
        if len(values) > 2 or named.keys() & given.keys() or named.keys() - _FIELDS:
            message = f"{_ENDPOINT}: expected the arguments observation and configuration"
            raise WebError(400, message)
        given.update(named)
        configuration = given.get("configuration")
        if isinstance(configuration, dict):
            configuration = plain(configuration)  # protobuf has arrays and tuples
        args: dict[str, Any] = {
            "state": {"observation": given.get("observation")},
            "configuration": configuration,
            "session": request.header(SESSION),
        }
        return self._actions.action_act(args)


def _agents_of_query(request: Request) -> list[str] | None:
    """Return the agents in the query, as kaggle-environments sends them; no other field is allowed there.

    Raises:
        WebError: 400 for any other field, which would otherwise be ignored.
    """
    for name in request.query:
        if name != _AGENTS:
            raise WebError(
                400,
                f"query: {name[:80]}: expected no field except {_AGENTS}; put other fields into "
                "the body",
            )
    return [request.query[_AGENTS]] if request.query else None


_FIELDS = {"observation", "configuration"}


def _json_reply(value: Any, args: dict[str, Any]) -> Response:
    if isinstance(value, str):  # from `dispose`, or a rendered episode
        mode = (args.get("render") or {}).get("mode", "json")
        if args["action"] == "dispose":
            return Response(value.encode(), content_type=_TEXT)
        kinds = {"json": "application/json", "ansi": _TEXT, "html": _HTML}
        return Response(value.encode("utf-8", "replace"), content_type=kinds[mode])
    return Response.of(value)


def _proto_reply(value: dict[str, Any], status: int = 200) -> Response:
    try:
        body = response_bytes(value)
    except WireError as error:  # an action that JSON can represent and protobuf cannot
        body = response_bytes({"error": f"the reply has no protobuf form: {error}"})
    return Response(body, status, PROTOBUF)
