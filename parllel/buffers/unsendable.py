"""Which part of a value it is that cannot be pickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_DEEPEST = 20  # a value may hold itself


def unsendable_part(value: Any, dumps: Callable[[Any], object]) -> str:
    """Return the place and type of the innermost part of `value` that `dumps` raises for.

    Of what belongs to a dict the place is as one would write it: `info['renderer']`.
    """
    place: list[str] = []
    while len(place) < _DEEPEST:
        for name, part in _parts(value, first=not any(place)):
            try:
                dumps(part)
            except Exception:
                place.append(name)
                value = part
                break
        else:
            break
    said = "".join(place)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{said}, of type {kind}," if said else f"an object of type {kind}"


def _parts(value: Any, first: bool) -> list[tuple[str, Any]]:
    """Return what a value holds, by how it is written; the tuples around it have no name of their own."""
    if isinstance(value, Mapping):
        return [(str(key) if first else f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [("" if first else f"[{i}]", part) for i, part in enumerate(value)]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, type):
        return [(name if first else f".{name}", part) for name, part in attributes.items()]
    return [("", part) for part in _arguments(value)]


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return what an object without attributes is to be made of again."""
    try:
        made_by = value.__reduce_ex__(4)
    except Exception:
        return ()
    return made_by[1] if isinstance(made_by, tuple) else ()
