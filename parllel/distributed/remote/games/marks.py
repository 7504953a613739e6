"""The marks `shared` and `hidden` of a specification: fields visible to all agents, and to none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

# Hidden fields of an object: True for a whole field, or the hidden fields inside it.
Hidden: TypeAlias = "dict[str, Any]"

_MARKS = ("hidden", "shared")
# Keywords whose content is values, not schemas.
_VALUES = ("const", "default", "defaults", "enum", "examples")
# Keywords whose content is schemas by arbitrary names.
_BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
# The time limit of an act and the start of an episode are read from these, wherever an agent acts.
_NEVER_HIDDEN = ("remainingOverageTime", "step")


def hidden_fields(values: Mapping[str, Any]) -> Hidden:
    """Return the observation fields that agents do not see.

    values: the values of a specification; each is a schema, or a dict of schemas keyed by name.

    Raises:
        ValueError: for a mark that is not true or false, or that would have no effect. `hidden` applies to
            fields of observations and of objects in them, `shared` only to fields of observations.
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
            raise ValueError(
                f"{where}: hidden: expected false, because an agent cannot act without this field"
            )
        if inside:
            found[name] = inside
    return found


def remove_hidden(value: Any, hidden: Hidden) -> None:
    """Remove the hidden fields from a value, if it is an object."""
    if not isinstance(value, dict):
        return
    for name, inside in hidden.items():
        if inside is True:
            value.pop(name, None)
        else:
            remove_hidden(value.get(name), inside)


def _hidden_in(schema: Any, where: str) -> Any:
    """Return True if a field is hidden, or else the hidden fields inside it."""
    if not isinstance(schema, Mapping):
        return {}
    is_hidden = _marked(schema, "hidden", where)
    found: Hidden = {}
    for path, inner, is_field in _inside(schema, where):
        if not is_field:
            _refuse_marks(inner, path)
            continue
        if isinstance(inner, Mapping) and _marked(inner, "shared", path):
            raise ValueError(
                f"{path}: shared: expected this mark only on whole fields of the observation"
            )
        inside = _hidden_in(inner, path)
        if inside:
            found[path.rpartition(".properties.")[2]] = inside
    return True if is_hidden else found


def _refuse_marks(schema: Any, where: str) -> None:
    """Raise ValueError if a schema contains a mark."""
    if not isinstance(schema, Mapping):
        return
    for mark in _MARKS:
        if _marked(schema, mark, where):
            raise ValueError(
                f"{where}: {mark}: expected this mark only on fields of the observation or of "
                "objects in it; here it would have no effect"
            )
    for path, inner, _ in _inside(schema, where):
        _refuse_marks(inner, path)


def _marked(schema: Mapping[str, Any], mark: str, where: str) -> bool:
    value = schema.get(mark, False)
    if not isinstance(value, bool):
        raise ValueError(f"{where}.{mark}: expected true or false, got {value!r:.80}")
    return value


def _inside(schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield path and value of each subschema, and whether it describes a field of an object."""
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
