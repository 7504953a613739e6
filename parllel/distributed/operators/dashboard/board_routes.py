"""REST routes of a board.

Each POST is a command: it is checked, passed to the board, and answered with the board's state right after.
No answer waits for a worker; the outcome of a command appears in later states.

    status   200 accepted   400 wrong fields   404 no such card or run   409 the wrong moment   503 closed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from parllel.distributed.operators.board.board import Board, UnknownCardError
from parllel.distributed.operators.dashboard.state_json import state_bytes
from parllel.distributed.operators.experiments.experiment_file import operator_from_json
from parllel.distributed.operators.experiments.experiment_list import (
    experiment_results,
    list_experiments,
)
from parllel.distributed.operators.experiments.recorded_episodes import (
    episode_overview,
    episode_steps,
    episode_video,
    list_episodes,
)
from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
from parllel.distributed.operators.protocol.operator_kinds import kinds_as_json
from parllel.distributed.operators.trusted_runs import check_runs
from parllel.distributed.web.app import Route
from parllel.distributed.web.request import Request, Response
from parllel.distributed.web.web_error import WebError
from parllel.errors import ClosedError, WrongStateError

_MAX_DIGITS = 15  # of numbers in queries
_SHOWN = 80  # characters of a value in error messages
_TYPES = {
    "a boolean": (bool,),
    "a list of ids": (list,),
    "a number": (int, float),
    "an object": (dict,),
    "an integer": (int,),
    "text": (str,),
    "any value": (object,),
}


def fields_of(request: Request, **expected: str) -> dict[str, Any]:
    """Return the fields of a body that is a JSON object. Absent fields are left out.

    expected: the type of each field: "a boolean", "a list of ids", "a number", "an object", "an
        integer", "text" or "any value". A "?" after the type marks a field that may be absent or
        null.

    Raises:
        WebError: 400, for a field that is unknown, missing or of another type.
    """
    values = request.json() if request.body else {}
    if not isinstance(values, dict):
        raise WebError(400, f"expected an object with {_listed(expected)}, got {_shown(values)}")
    for name in values:
        if name not in expected:
            raise WebError(400, f"unknown field {_shown(name)}; expected {_listed(expected)}")
    found = {}
    for name, kind in expected.items():
        value = values.get(name)
        if value is None and kind.endswith("?"):
            continue
        if name not in values:
            raise WebError(400, f"{name}: expected {kind.rstrip('?')}, got none")
        _check(name, value, kind.rstrip("?"))
        found[name] = value
    return found


def _check(name: str, value: Any, kind: str) -> None:
    # In Python a bool is an int.
    right = isinstance(value, _TYPES[kind]) and (
        not isinstance(value, bool) or kind in ("a boolean", "any value")
    )
    if right and kind == "a list of ids":
        right = all(isinstance(card_id, str) for card_id in value)
    if not right:
        raise WebError(400, f"{name}: expected {kind}, got {_shown(value)}")


def _listed(expected: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r}" for name in expected) or "no fields"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


Command = Callable[[dict[str, Any]], object]
# Fields of each command's body, in terms of `fields_of`.
_FIELDS: dict[str, dict[str, str]] = {
    "cards": {"operator": "an object?", "game": "an object?"},
    "remove": {"card": "text"},
    "restart": {"card": "text"},
    "reset": {"seed": "an integer?", "cards": "a list of ids?"},
    "step": {"cards": "a list of ids?"},
    "play": {"cards": "a list of ids?", "autoplay": "a boolean?"},
    "stop": {},
    "speed": {"steps_per_s": "a number?"},
    "act": {"card": "text", "number": "an integer", "action": "any value"},
    "watch": {"script": "text"},
    "unwatch": {},
}


class BoardRoutes:
    """REST routes of a board.

    Args:
        board: the board, which is called from the server's threads.
        base: folder below which experiments are listed.
        trusted: whether to execute run scripts from any folder, see `check_runs`.
    """

    def __init__(self, board: Board, base: str, *, trusted: bool) -> None:
        self._board = board
        self._base = base
        self._trusted = trusted

    def routes(self) -> list[Route]:
        """Return all REST routes."""
        asked = {
            "state": self._state,
            "frame": self._frame,
            "kinds": lambda request: kinds_as_json(),
            "experiments": self._experiments,
            "results": self._results,
            "episodes": lambda request: self._recorded(request, list_episodes, "run", "from?"),
            "episode": lambda request: self._recorded(
                request, episode_overview, "run", "operator", "episode"
            ),
            "steps": lambda request: self._recorded(
                request, episode_steps, "run", "operator", "episode", "from?"
            ),
            "video": self._video,
        }
        board = self._board
        commands: dict[str, Command] = {
            "cards": self._launch,
            "remove": lambda given: board.remove(given["card"]),
            "restart": lambda given: board.restart(given["card"]),
            "reset": lambda given: board.reset(**given),
            "step": lambda given: board.step(**given),
            "play": lambda given: board.play(**given),
            "stop": lambda given: board.stop(),
            "speed": lambda given: board.set_speed(given.get("steps_per_s")),
            "act": lambda given: board.act(given["card"], given["number"], given["action"]),
            "watch": lambda given: board.watch(given["script"]),
            "unwatch": lambda given: board.unwatch(),
        }
        return [
            *(Route(f"/api/{name}", {"GET": answer}) for name, answer in asked.items()),
            *(
                Route(f"/api/{name}", {"POST": partial(self._take, name, command)})
                for name, command in commands.items()
            ),
        ]

    def _take(self, name: str, command: Command, request: Request) -> Response:
        given = fields_of(request, **_FIELDS[name])
        with refused():
            command(given)
        return self._state(request)

    def _state(self, request: Request) -> Response:
        return Response(state_bytes(self._board.snapshot()))

    def _launch(self, given: dict[str, Any]) -> None:
        if len(given) != 1:
            raise WebError(400, "expected either 'operator' or 'game'")
        ((kind, values),) = given.items()
        config = operator_from_json(values, "request")
        if isinstance(config, MultiAgentConfig) is not (kind == "game"):
            raise WebError(400, f"{kind}: expected {'' if kind == 'game' else 'no '}'players'")
        check_runs([config], trusted=self._trusted)
        self._board.launch(config)

    def _frame(self, request: Request) -> Response:
        card = _asked(request, "card")
        with refused():
            frame = self._board.frame(card)
        if frame is None:
            raise WebError(404, f"card {card[:64]!r} has no frame: nothing was drawn yet")
        return Response(frame.png, content_type="image/png")

    def _experiments(self, request: Request) -> dict[str, Any]:
        with refused():
            return {"experiments": list_experiments(self._base)}

    def _results(self, request: Request) -> Response:
        run = _asked(request, "run")
        with refused():
            return Response(state_bytes(experiment_results(self._base, run)))

    def _video(self, request: Request) -> Response:
        query = _query(request, "run", "operator", "episode")
        episode = _number("episode", query["episode"])
        with refused():
            video = episode_video(self._base, query["run"], query["operator"], episode)
        return Response(video, content_type="video/mp4")

    def _recorded(
        self, request: Request, read: Callable[..., dict[str, Any]], *names: str
    ) -> Response:
        query = _query(request, *names)
        numbers = [_number(name, query[name]) for name in ("episode", "from") if name in query]
        texts = [query[name] for name in ("run", "operator") if name in query]
        with refused():
            return Response(state_bytes(read(self._base, *texts, *numbers)))


def _asked(request: Request, name: str) -> str:
    return _query(request, name)[name]


def _query(request: Request, *names: str) -> dict[str, str]:
    """Return the query's fields. A "?" after a name marks a field that may be absent."""
    needed = {name for name in names if not name.endswith("?")}
    known = {name.rstrip("?") for name in names}
    if not needed <= set(request.query) <= known:
        fields = "&".join(f"{name.rstrip('?')}=..." for name in names)
        raise WebError(400, f"expected only the query ?{fields}")
    return request.query


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise WebError(400, f"{name}: expected a number of at least 0, got {_shown(text)}")
    return int(text)


@contextmanager
def refused() -> Iterator[None]:
    """Convert a board's refusal to an error reply of one sentence.

    Raises:
        WebError: 400, 404, 409 or 503.
    """
    try:
        yield
    except (UnknownCardError, KeyError) as error:
        raise WebError(404, _sentence(error)) from error
    except ClosedError as error:
        raise WebError(503, _sentence(error)) from error
    except WrongStateError as error:
        raise WebError(409, _sentence(error)) from error
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise WebError(400, _sentence(error)) from error


def _sentence(error: BaseException) -> str:
    # str() of a KeyError puts the message in quotes.
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(message).split())
