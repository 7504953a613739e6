"""The marks `shared` and `hidden` in a specification: what all agents see, and what none of them does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

# What is hidden in an object: True for a whole field, else what is hidden inside it.
Hidden: TypeAlias = "dict[str, Any]"

_MARKS = ("hidden", "shared")
# In these stand values, and no schemas.
_VALUES = ("const", "default", "defaults", "enum", "examples")
# And here schemas by names of any kind.
_BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
# The time of an agent and the beginning of its episode: who asks it needs them.
_NEVER_HIDDEN = ("remainingOverageTime", "step")


def hidden_fields(values: Mapping[str, Any]) -> Hidden:
    """Return which fields of observations agents do not see.

    values: of a specification, whose parts are schemas, or schemas by name.

    Raises:
        ValueError: for a mark that is neither true nor false, and for one that would have no effect: `hidden`
            is for fields of observations and of objects in them, `shared` for fields of observations.
    """
    for part in ("action", "reward", "status"):
        _refuse_marks(values[part], part)
    for part in ("configuration", "info"):
        for name, schema in values[part].items():
            _refuse_marks(schema, f"{part}.{name}")
    found: Hidden = {}
    for name, schema in values["observation"].items():
        where = f"observation.{name}"
        _marked(schema, "shared", where)
        inside = _hidden_in(schema, where)
        if inside and name in _NEVER_HIDDEN:
            raise ValueError(f"{where}: hidden: an agent cannot act without it")
        if inside:
            found[name] = inside
    return found


def remove_hidden(value: Any, hidden: Hidden) -> None:
    """Take what is hidden out of an object, if it is one."""
    if not isinstance(value, dict):
        return
    for name, inside in hidden.items():
        if inside is True:
            value.pop(name, None)
        else:
            remove_hidden(value.get(name), inside)


def _hidden_in(schema: Any, where: str) -> Any:
    """Return True if a field is hidden, else what is hidden inside it."""
    if not isinstance(schema, Mapping):
        return {}
    is_hidden = _marked(schema, "hidden", where)
    found: Hidden = {}
    for path, inner, is_field in _inside(schema, where):
        if not is_field:
            _refuse_marks(inner, path)
            continue
        if isinstance(inner, Mapping) and _marked(inner, "shared", path):
            raise ValueError(f"{path}: shared: expected it for whole fields of the observation")
        inside = _hidden_in(inner, path)
        if inside:
            found[path.rpartition(".properties.")[2]] = inside
    return True if is_hidden else found


def _refuse_marks(schema: Any, where: str) -> None:
    """Raise ValueError if anything is marked in a schema."""
    if not isinstance(schema, Mapping):
        return
    for mark in _MARKS:
        if _marked(schema, mark, where):
            raise ValueError(
                f"{where}: {mark}: expected it for fields of the observation, or of objects in it; here it "
                "would have no effect"
            )
    for path, inner, _ in _inside(schema, where):
        _refuse_marks(inner, path)


def _marked(schema: Mapping[str, Any], mark: str, where: str) -> bool:
    value = schema.get(mark, False)
    if not isinstance(value, bool):
        raise ValueError(f"{where}.{mark}: expected true or false, got {value!r:.80}")
    return value


def _inside(schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield path and value of each schema in a schema, and whether it is that of a field of an object."""
    for key, value in schema.items():
        path = f"{where}.{key}"
        if key in _VALUES:
            continue
        if key in _BY_NAME and isinstance(value, Mapping):
            for name, inner in value.items():
                yield f"{path}.{name}", inner, key == "properties"
        elif isinstance(value, Mapping):
            yield path, value, False
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                yield f"{path}[{i}]", inner, False
