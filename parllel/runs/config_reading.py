"""Read the values of a config from JSON values, and from text of a command line."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from parllel.runs.config_keys import deeper, is_dataclass_type, join_path, kind_of, kinds_of
from parllel.runs.names import nearest

_MISSING = object()
_NONE = type(None)
_EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
    _NONE: "none",
}
_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Text(str):
    """A value from a command line, to be read as what is expected in its place."""


class Changes(dict[str, Any]):
    """New values of some keys of a group; the others stay as they are."""


def read_value(kind: Any, value: Any, at: str, base: Any = _MISSING) -> Any:
    """Return `value`, or the values in it, as `kind` has them; raise as `read_config` does.

    at: path of the value, for messages.
    base: what stands in its place so far.
    """
    if isinstance(kind, Mapping) or is_dataclass_type(kind):
        return _read_group(kind, value, at, base)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, at, base)
    if origin in (dict, Mapping, collections.abc.MutableMapping):
        return _read_dict(arguments or (str, Any), value, at, base)
    if kind in (Any, object):
        if isinstance(value, (Text, Changes)) and base is not None and base is not _MISSING:
            return read_value(kind_of(base), value, at, base)
        if not isinstance(value, Changes):
            return _guess(value) if isinstance(value, Text) else value
    if isinstance(value, Changes):
        name = join_path(at, next(iter(value)))
        raise ValueError(f"unknown key {name!r}: {at!r} is a single value")
    if origin is Literal:
        return _read_choice(arguments, value, at)
    if origin in (list, tuple, Sequence):
        return _read_sequence(origin, arguments, value, at)
    return _read_scalar(kind, value, at)


def _read_group(kind: Any, value: Any, at: str, base: Any) -> Any:
    if isinstance(value, Text):
        value = _guess(value)
    if not isinstance(kind, Mapping) and isinstance(value, kind):
        return value
    defaults = _defaults_of(kind, base)
    _check_group(value, at)
    _check_names(value, defaults, at, kind)
    kinds = kinds_of(kind)
    found = {}
    for name, default in defaults.items():
        if name in value:
            found[name] = read_value(kinds[name], value[name], join_path(at, name), default)
        elif default is _MISSING:
            raise ValueError(f"{join_path(at, name)}: expected a value, as it has no default")
        else:
            found[name] = default
    return found if isinstance(kind, Mapping) else kind(**found)


def _defaults_of(kind: Any, base: Any) -> dict[str, Any]:
    """Return what the values of a group are unless they are given, by name."""
    if isinstance(kind, Mapping):
        return dict(base if isinstance(base, Mapping) else kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    if isinstance(base, kind):
        return {field.name: getattr(base, field.name) for field in fields}
    found = {}
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
        else:
            given = field.default is not dataclasses.MISSING
            found[field.name] = field.default if given else _MISSING
    return found


def _read_dict(kinds: tuple[Any, ...], value: Any, at: str, base: Any) -> dict[str, Any]:
    key_kind, kind = kinds
    if key_kind is not str:
        raise TypeError(f"{at}: a dict in a config has strings as keys, and no {key_kind}")
    if isinstance(value, Text):
        value = _guess(value)
    _check_group(value, at)
    current = base if isinstance(base, Mapping) and isinstance(value, Changes) else {}
    if isinstance(value, Changes):
        _check_names(value, current, at, current)
    read = {
        n: read_value(kind, v, join_path(at, n), current.get(n, _MISSING)) for n, v in value.items()
    }
    return {**current, **read}


def _read_union(kinds: tuple[Any, ...], value: Any, at: str, base: Any) -> Any:
    if _NONE in kinds and (value is None or (isinstance(value, Text) and _is_none(value))):
        return None
    others = [kind for kind in kinds if kind is not _NONE]
    if len(others) == 1:
        return read_value(others[0], value, at, base)
    # An int stays one where floats may come as well; text is text only if it is nothing else.
    if isinstance(value, Text):
        exact = value.strip().lstrip("+-").replace("_", "").isdecimal()
        others.sort(key=lambda kind: (kind is str, kind is int and not exact))
    else:
        others.sort(key=lambda kind: kind is not type(value))
    problems = []
    for kind in others:
        try:
            return read_value(kind, value, at, base)
        except (TypeError, ValueError) as error:
            problems.append(str(error))
    raise ValueError("; or ".join(problems))


def _read_choice(choices: tuple[Any, ...], value: Any, at: str) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
        if isinstance(value, Text) and value in (str(choice), str(choice).lower()):
            return choice
    near = nearest(str(value), [str(choice) for choice in choices])
    hint = f"; did you mean {near!r}?" if near else ""
    raise ValueError(f"{at}: expected one of {list(choices)}, got {value!r}{hint}")


def _read_sequence(origin: Any, arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if isinstance(value, Text):
        value = _items(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{at}: expected a list, got {value!r}")
    kinds = list(arguments)
    if origin is not tuple or not kinds or kinds[-1] is Ellipsis:
        kinds = [kinds[0] if kinds else Any] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{at}: expected {len(kinds)} values, got {len(value)}: {value!r}")
    pairs = zip(kinds, value, strict=True)
    read = [read_value(kind, part, f"{at}[{i}]") for i, (kind, part) in enumerate(pairs)]
    return read if origin is list else tuple(read)


def _read_scalar(kind: Any, value: Any, at: str) -> Any:
    if kind not in _EXPECTED:
        raise TypeError(f"{at}: {kind} is no type that can be read from JSON values")
    if isinstance(value, np.generic):
        value = value.item()
    try:
        if isinstance(value, Text):
            return _parse(kind, value)
    except (ValueError, KeyError):
        raise ValueError(f"{at}: expected {_EXPECTED[kind]}, got {str(value)!r}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6 is how many write a million
    if kind is Path and isinstance(value, str):
        return Path(value)
    # To Python a bool is an int, but True is no number of steps.
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise TypeError(f"{at}: expected {_EXPECTED[kind]}, got {value!r}")


def _parse(kind: Any, text: str) -> Any:
    if kind is bool:
        return _BOOLS[text.lower()]
    if kind is _NONE and not _is_none(text):
        raise ValueError(text)
    if kind is int:
        return whole_number(text)
    return None if kind is _NONE else kind(str(text))


def whole_number(text: str) -> int:
    """Return what `int` makes of a text, or of a float without a fraction, as 1e6 is one.

    Raises:
        ValueError: if it is neither.
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise
        return int(value)


def _guess(text: str) -> Any:
    """Return what JSON makes of a text, or the text."""
    try:
        return None if _is_none(text) else json.loads(text)
    except json.JSONDecodeError:
        return str(text)


def _items(text: str) -> list[Any]:
    """Return the elements of a list as JSON or Python have it, or between commas alone."""
    text = text.strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
        try:
            found: list[Any] = json.loads(f"[{text}]")
            return found
        except json.JSONDecodeError:
            pass
    return [Text(part.strip()) for part in text.split(",") if part.strip()]


def _check_group(value: Any, at: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{at or 'config'}: expected a dict, got {value!r}")


def _check_names(value: Mapping[str, Any], names: Iterable[str], at: str, kind: Any) -> None:
    names = list(names)
    for name in value:
        if name in names:
            continue
        near = nearest(str(name), names) or deeper(str(name), kind)
        hint = f"did you mean {join_path(at, near)!r}?" if near else f"expected one of {names}"
        raise ValueError(f"unknown key {join_path(at, str(name))!r}; {hint}")


def _is_none(text: str) -> bool:
    return text.lower() in ("none", "null")
