"""Fields of a request, validated on access."""

from __future__ import annotations

from typing import Any

from parllel.distributed.remote.server.sessions import checked_name
from parllel.distributed.web.web_error import WebError
from parllel.policies.env_names import names_code

_MODES = ("json", "ansi", "html")  # accepted by `render`


class Arguments:
    """Typed access to the fields of a request. Each method raises WebError 400 for an invalid value.

    A null field counts as missing.
    """

    def __init__(self, args: dict[str, Any]) -> None:
        self._args = args

    def has(self, name: str) -> bool:
        """Return whether a field is given."""
        return self._args.get(name) is not None

    def environment(self) -> str:
        """Return the environment's name."""
        name = self._args.get("environment")
        if not isinstance(name, str) or not name:
            raise WebError(
                400, "environment: expected a name; the action `list` returns the known names"
            )
        return name

    def environment_to_make(self) -> str:
        """Return the environment's name. Refuses names that would make the server import code."""
        name = self.environment()
        if names_code(name):
            raise WebError(
                400, f"environment {name!r}: expected a registered name, not a module or file"
            )
        return name

    def session(self) -> str:
        """Return the name of the session."""
        return checked_name(self._args.get("session"))

    def only_agent(self) -> Any:
        """Return the single item of `agents`."""
        agents = self._args.get("agents")
        if not isinstance(agents, list) or len(agents) != 1:
            raise WebError(400, "agents: expected a list with exactly one agent")
        if agents[0] is None:
            raise WebError(400, "agents: expected an agent, got null")
        return agents[0]

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return a field that is an object, or None."""
        value = self._args.get(name)
        if value is not None and not isinstance(value, dict):
            raise WebError(400, f"{name}: expected an object")
        return value

    def list_or_none(self, name: str) -> list[Any] | None:
        """Return a field that is an array, or None."""
        value = self._args.get(name)
        if value is not None and not isinstance(value, list):
            raise WebError(400, f"{name}: expected an array")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a required field that is an array."""
        value = self.list_or_none(name)
        if value is None:
            raise WebError(400, f"{name}: expected an array")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean field, or False if it is missing."""
        value = self._args.get(name)
        if value is not None and not isinstance(value, bool):
            raise WebError(400, f"{name}: expected true or false")
        return bool(value)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """Return a field that is an integer within bounds, or the default."""
        value = self._args.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise WebError(400, f"{name}: expected an integer from {least} to {most:,}")
        return value

    def steps(self) -> list[Any] | None:
        """Return `steps`, or a single step made of `state`."""
        steps = self.list_or_none("steps")
        if steps is None and self.has("state"):
            return [self.items("state")]
        return steps

    def observation(self) -> dict[str, Any]:
        """Return `state.observation`, or {} if it is missing."""
        state = self.mapping("state") or {}
        return _checked_observation(state.get("observation"), "state.observation")

    def observations(self) -> list[dict[str, Any]] | None:
        """Return the observations of a batch, or None for a request with a single observation."""
        given = self.list_or_none("observations")
        if given is None:
            return None
        return [_checked_observation(given[i], f"observations[{i}]") for i in range(len(given))]

    def render_mode(self) -> str:
        """Return the mode of `render`, or "json" if it is missing."""
        mode = (self.mapping("render") or {}).get("mode", "json")
        if mode not in _MODES:
            raise WebError(400, f"render.mode: expected one of {', '.join(_MODES)}")
        return str(mode)


def _checked_observation(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WebError(400, f"{name}: expected an object")
    overage = value.get("remainingOverageTime")
    if overage is not None and (isinstance(overage, bool) or not isinstance(overage, (int, float))):
        raise WebError(400, f"{name}.remainingOverageTime: expected a number of seconds")
    return value
