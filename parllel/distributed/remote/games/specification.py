"""Specification of a game, completed with the fields that all games share, and its validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import jsonschema

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.marks import hidden_fields
from parllel.distributed.remote.games.position import STATUSES, PlayerState, Position
from parllel.distributed.remote.plain_values import plain

# Added to every game; a game may override any part.
_CONFIGURATION: dict[str, Any] = {
    "episodeSteps": {
        "description": "Maximum number of states in an episode, including the first.",
        "type": "integer",
        "minimum": 1,
        # A replay is held in memory: with small observations this is 200 MB.
        "maximum": 100_000,
        "default": 1000,
    },
    "actTimeout": {
        "description": "Seconds per action before remainingOverageTime is used.",
        "type": "number",
        "minimum": 0,
        "default": 1,
    },
    "runTimeout": {
        "description": "Time limit of an episode in seconds; beyond it the episode is stopped.",
        "type": "number",
        "minimum": 0,
        "default": 1200,
    },
    "agentTimeout": {
        "description": "Seconds that an agent may use beyond actTimeout during an episode.",
        "type": "number",
        "minimum": 0,
        "default": 60,
    },
    "maxLogLength": {
        "description": "Characters of an agent's stdout and stderr, each, kept per step.",
        "type": "integer",
        "minimum": 0,
        "default": 10000,
    },
    "seed": {
        "description": "Seed of the first episode; null draws one at random.",
        "type": ["integer", "null"],
        "minimum": 0,
        "default": None,
    },
}
_OBSERVATION: dict[str, Any] = {
    "remainingOverageTime": {
        "description": "Seconds left of agentTimeout; an agent that exceeds them fails with TIMEOUT.",
        "type": "number",
        "shared": False,
        "default": 60,
    },
    "step": {
        "description": "Number of the step.",
        "type": "integer",
        "shared": True,
        "minimum": 0,
        "default": 0,
    },
}
_REWARD = {"description": "Reward so far.", "type": ["number", "null"], "default": 0}
_SIMPLE = {"type", "minimum", "maximum", "default", "description", "title"}


class Specification:
    """Complete specification with compiled validators.

    Args:
        given: specification of a game, to which the fields that all games share are added.

    Attributes:
        values: the specification as JSON values, in the format of a replay.
        shared: names of the observation's fields that all agents see.
        hidden: fields of observations that no agent sees.

    Raises:
        ValueError: if the name or the numbers of agents are missing, a schema is invalid, or a mark
            `shared` or `hidden` would have no effect.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.values = values = copy.deepcopy(dict(given))
        name = values.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"specification.name: expected a name, got {name!r}")
        numbers = values.get("agents")
        if not isinstance(numbers, list) or not numbers or not all(_is_count(n) for n in numbers):
            raise ValueError(
                f"specification.agents of {name}: expected a list of numbers of agents, got {numbers!r}"
            )
        values.setdefault("title", name)
        values.setdefault("description", values["title"])
        values.setdefault("version", "1.0.0")
        values["configuration"] = _merged(_CONFIGURATION, values.get("configuration", {}))
        values["observation"] = _merged(_OBSERVATION, values.get("observation", {}))
        values.setdefault("reward", dict(_REWARD))
        values.setdefault("action", {})
        values.setdefault("info", {})
        values.setdefault("status", {})
        try:
            self.hidden = hidden_fields(values)
        except ValueError as error:
            raise ValueError(f"specification of {name}: {error}") from None
        self.shared = frozenset(
            field for field, schema in values["observation"].items() if schema.get("shared")
        )
        self._configuration = _validator(name, {"properties": values["configuration"]})
        self._action = _validator(name, values["action"])
        self._row = _validator(name, _row_schema(values))
        self._quick = _quick_check(values["action"])

    @property
    def name(self) -> str:
        """Name of the game."""
        return str(self.values["name"])

    def configure(self, configuration: Mapping[str, Any] | None) -> dict[str, Any]:
        """Complete a configuration with all defaults. Names unknown to the specification are kept.

        Raises:
            ValueError: for a value that violates its schema. Names the value.
        """
        values = {} if configuration is None else plain(dict(configuration))
        for field, schema in self.values["configuration"].items():
            if "default" in schema:
                values.setdefault(field, plain(schema["default"]))
        error = jsonschema.exceptions.best_match(self._configuration.iter_errors(values))
        if error is not None:
            raise ValueError(f"{self.name}: configuration{_where(error)}: {_what(error)}")
        return values

    def check_number(self, n_agents: int) -> None:
        """Raise ValueError for a number of agents that the game does not allow."""
        if n_agents not in self.values["agents"]:
            expected = " or ".join(str(number) for number in self.values["agents"])
            raise ValueError(f"{self.name}: expected {expected} agents, got {n_agents}")

    def action_error(self, action: Any) -> str | None:
        """Return what is wrong with an action, or None if it is valid."""
        # The compiled schema takes 20 us even for an integer.
        if self._quick is not None and self._quick(action):
            return None
        error = jsonschema.exceptions.best_match(self._action.iter_errors(action))
        return None if error is None else f"action{_where(error)}: {_what(error)}"

    def position(self, n_agents: int, configuration: Mapping[str, Any]) -> Position:
        """Build a position whose seats have the defaults."""
        observation = self.values["observation"]
        shared = {f: _default(observation[f], 0) for f in observation if f in self.shared}
        seats = []
        for number in range(n_agents):
            own = {f: _default(observation[f], number) for f in observation if f not in self.shared}
            own["remainingOverageTime"] = configuration["agentTimeout"]
            seats.append(
                PlayerState(
                    {field: value for field, value in own.items() if value is not _NONE},
                    self.default_action(number),
                    _or_none(_default(self.values["reward"], number)),
                    status
                    if (status := _default(self.values["status"], number)) is not _NONE
                    else "ACTIVE",
                )
            )
        return Position(seats, {f: value for f, value in shared.items() if value is not _NONE})

    def default_action(self, number: int) -> Any:
        """Return the action played for a seat without an agent.

        Returns None if the schema has no default.
        """
        return _or_none(_default(self.values["action"], number))

    def check_row(self, row: Any, number: int) -> list[dict[str, Any]]:
        """Validate a step of an untrusted replay. Returns it with defaults for missing fields.

        Raises:
            ValueError: for a value that violates its schema. Names the value.
        """
        where = f"{self.name}: steps[{number}]"
        if not isinstance(row, list) or len(row) not in self.values["agents"]:
            numbers = " or ".join(str(n) for n in self.values["agents"])
            raise ValueError(f"{where}: expected a list of the states of {numbers} agents")
        made = []
        for seat, state in enumerate(row):
            if not isinstance(state, dict):
                raise ValueError(
                    f"{where}: expected the state of each agent to be a JSON object, got "
                    f"{type(state).__name__}"
                )
            defaults: dict[str, Any] = {
                "action": None,
                "reward": _or_none(_default(self.values["reward"], seat)),
                "info": {},
                "observation": {},
                "status": "ACTIVE",
            }
            made.append(plain({**defaults, **state}))
        error = jsonschema.exceptions.best_match(self._row.iter_errors(made))
        if error is not None:
            raise ValueError(f"{where}{_where(error)}: {_what(error)}")
        return made


_NONE = object()
# By class, for specifications that are class attributes: checking all schemas takes milliseconds.
_known: WeakKeyDictionary[type[Game], tuple[Mapping[str, Any], Specification]] = WeakKeyDictionary()


def specification_of(game: Game) -> Specification:
    """Return the complete specification of a game. Games of one class may share it."""
    given, kind = game.specification, type(game)
    known = _known.get(kind)
    if known is not None and known[0] is given:
        return known[1]
    made = Specification(given)
    if getattr(kind, "specification", None) is given:
        _known[kind] = (given, made)
    return made


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge schemas of fields: a game may override parts of the common ones."""
    return {**common, **{field: {**common.get(field, {}), **own[field]} for field in own}}


def _default(schema: Mapping[str, Any], number: int) -> Any:
    """Return a field's default for a seat: its item of `defaults` (or the last one), or `default`."""
    if "defaults" in schema:
        defaults: list[Any] = schema["defaults"]
        return plain(defaults[min(number, len(defaults) - 1)])
    return plain(schema["default"]) if "default" in schema else _NONE


def _or_none(value: Any) -> Any:
    return None if value is _NONE else value


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 1


def _row_schema(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a step of a replay."""
    properties = {
        "action": {"anyOf": [{"type": "null"}, values["action"]]},
        "reward": {"type": ["number", "null"]},
        "info": {"type": "object"},
        "observation": {"type": "object", "properties": values["observation"]},
        "status": {"enum": list(STATUSES)},
    }
    return {"type": "array", "items": {"type": "object", "properties": properties}}


def _quick_check(schema: Mapping[str, Any]) -> Callable[[Any], bool] | None:
    """Return a fast check that accepts most valid numbers and rejects everything else, or None."""
    if schema.get("type") not in ("integer", "number") or not set(schema) <= _SIMPLE:
        return None
    kinds = (int,) if schema["type"] == "integer" else (int, float)
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    return lambda action: type(action) in kinds and least <= action <= most


def _validator(name: str, schema: Mapping[str, Any]) -> Any:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"specification of {name}: {error.message}") from None
    return jsonschema.Draft202012Validator(schema)


def _where(error: Any) -> str:
    """Return the path of an invalid value, in Python's notation."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )


def _what(error: Any) -> str:
    message = str(error.message)
    return message if len(message) <= 200 else f"{message[:200]}..."
