"""The fields of a request's body, each of the type that it has to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.web.call import Call
from parllel.distributed.web.web_error import WebError

_SHOWN = 80  # characters of a value, in messages
_TYPES = {
    "a boolean": (bool,),
    "a list of ids": (list,),
    "a number": (int, float),
    "an object": (dict,),
    "an integer": (int,),
    "text": (str,),
    "any value": (object,),
}


def fields_of(call: Call, **expected: str) -> dict[str, Any]:
    """Return the fields of a body that is a JSON object; those that are absent are left out.

    expected: what each field has to be, one of "a boolean", "a list of ids", "a number", "an object",
        "an integer", "text" and "any value"; with "?" after it, the field may be absent or null.

    Raises:
        WebError: 400, for a field that is unknown, missing or of another type.
    """
    values = call.json() if call.body else {}
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
    # A bool is an int to Python.
    right = isinstance(value, _TYPES[kind]) and (
        not isinstance(value, bool) or kind in ("a boolean", "any value")
    )
    if right and kind == "a list of ids":
        right = all(isinstance(one, str) for one in value)
    if not right:
        raise WebError(400, f"{name}: expected {kind}, got {_shown(value)}")


def _listed(expected: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r}" for name in expected) or "no fields"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
