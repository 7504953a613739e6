"""Configurations: nested dataclasses or dicts, from and to JSON values, with every key and type checked.

Not msgspec: it ignores unknown keys of dataclasses, reads no list from text, and its errors show no value.

The annotation of a field, or in a dict the default value, determines the accepted values:

    dataclass, dict of defaults     a dict with some of those keys; the others keep their defaults
    bool, int, float, str, Path     that type; also an int for a float, but not a bool for an int
    X | None, int | str, Literal    None; one of the types, exact match first; one of the choices
    list[X], tuple[X, ...], tuple[X, Y], Sequence[X]      a list, converted to the declared type
    dict[str, X]                    any keys
    Any                             anything

The groups of a config are the dataclasses in it, or the dicts among the defaults of a dict.
"""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from parllel.runs.names import nearest

Config = TypeVar("Config")

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


class _Text(str):
    """A value from a command line, parsed as the expected type."""


class _Overrides(dict[str, Any]):
    """New values for some keys of a group; other keys keep their values."""


def read_config(kind: type[Config] | Config, values: Mapping[str, Any]) -> Config:
    """Build a config from `values`, with defaults for missing keys.

    Args:
        kind: a dataclass type, or a dict of defaults. In a dict, None accepts any value, and
            elements of a list must be of the same kind as the existing ones.
        values: JSON values, such as those returned by `config_values`.

    Raises:
        ValueError: for an unknown key (the message names its path and the closest valid one), a
            missing key, or a value that is not one of the choices.
        TypeError: for a value of the wrong type. The message names the path, the expected type and
            the value.
    """
    if not isinstance(kind, Mapping) and not _is_dataclass_type(kind):
        raise TypeError(f"kind: expected a dataclass or a dict of defaults, got {kind!r}")
    # A copy, as lists and dicts among the defaults must not be shared between configs.
    config: Config = _read_value(copy.deepcopy(kind), values, "")
    return config


def change_config(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a copy of a config with some values changed.

    Args:
        config: a dataclass object or a dict.
        changes: new values keyed by path, such as `{"ppo.learning_rate": 1e-4}`. Strings are parsed
            as the expected type, for example "1e-4", "true", "none" and "[64, 64]". Paths must
            exist: to add a key to a dict, replace the whole dict.

    Raises:
        ValueError, TypeError: for the reasons given in `read_config`.
    """
    if not _is_config(config):
        raise TypeError(f"config: expected a dataclass object or a dict, got {config!r}")
    nested = _Overrides()
    for path, value in changes.items():
        _insert(nested, path, _Text(value) if type(value) is str else value)
    kind = config if isinstance(config, Mapping) else type(config)
    changed: Config = _read_value(kind, nested, "", copy.deepcopy(config))
    return changed


def config_values(config: Any) -> dict[str, Any]:
    """Convert a config to JSON values, from which `read_config` builds an equal one.

    Raises:
        TypeError: for a value that JSON cannot represent. The message names the path.
    """
    if not _is_config(config):
        raise TypeError(f"config: expected a dataclass object or a dict, got {config!r}")
    values: dict[str, Any] = _values(config, "")
    return values


def key_paths(kind: Any) -> list[str]:
    """Return the paths of all keys of a config, including groups."""
    groups = _groups_of(kind)
    below = [_join_path(group, path) for group in groups for path in key_paths(groups[group])]
    return [*_kinds_of(kind), *below]


def nearest_key(path: str, kind: Any) -> str | None:
    """Return the key path closest to `path`, or None if none is similar."""
    group, dot, rest = path.partition(".")
    groups = _groups_of(kind)
    if dot and group in groups:
        near = nearest_key(rest, groups[group])
        return None if near is None else _join_path(group, near)
    return nearest(path, _kinds_of(kind)) or _deeper(path, kind)


def whole_number(text: str) -> int:
    """Parse an int, also written as a float without a fraction, such as 1e6.

    Raises:
        ValueError: for any other text.
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise
        return int(value)


def _values(value: Any, at: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Only fields that `__init__` accepts can be restored.
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _values(getattr(value, name), _join_path(at, name)) for name in fields}
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"{at or 'config'}: keys must be strings, got {name!r}")
        return {name: _values(part, _join_path(at, name)) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_values(part, f"{at}[{i}]") for i, part in enumerate(value)]
    # Before Python's types: np.float64 is a float too, and would stay numpy's.
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{at}: expected numbers, strings, lists, dicts and dataclasses, got {value!r}")


def _insert(group: _Overrides, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for name in above:
        group = group.setdefault(name, _Overrides())
        if not isinstance(group, _Overrides):
            raise ValueError(f"{path}: {name!r} as a whole is also changed")
    if last in group:
        raise ValueError(f"{path}: values below it are also changed")
    group[last] = value


def _is_config(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_dataclass_type(type(value))


# ------------------------------------------------------------------ values


def _read_value(kind: Any, value: Any, at: str, base: Any = _MISSING) -> Any:
    """Convert `value`, recursively, to `kind`. Raises as `read_config` does.

    at: path of the value, for error messages.
    base: the current value at that path.
    """
    if isinstance(kind, Mapping) or _is_dataclass_type(kind):
        return _read_group(kind, value, at, base)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, at, base)
    if origin in (dict, Mapping, collections.abc.MutableMapping):
        return _read_dict(arguments or (str, Any), value, at, base)
    if kind in (Any, object):
        if isinstance(value, (_Text, _Overrides)) and base is not None and base is not _MISSING:
            return _read_value(_kind_of(base), value, at, base)
        if not isinstance(value, _Overrides):
            return _guess(value) if isinstance(value, _Text) else value
    if isinstance(value, _Overrides):
        name = _join_path(at, next(iter(value)))
        raise ValueError(f"unknown key {name!r}: {at!r} is a single value")
    if origin is Literal:
        return _read_choice(arguments, value, at)
    if origin in (list, tuple, Sequence):
        return _read_sequence(origin, arguments, value, at)
    return _read_scalar(kind, value, at)


def _read_group(kind: Any, value: Any, at: str, base: Any) -> Any:
    if isinstance(value, _Text):
        value = _guess(value)
    if not isinstance(kind, Mapping) and isinstance(value, kind):
        return value
    defaults = _defaults_of(kind, base)
    _check_group(value, at)
    _check_names(value, defaults, at, kind)
    kinds = _kinds_of(kind)
    found = {}
    for name, default in defaults.items():
        if name in value:
            found[name] = _read_value(kinds[name], value[name], _join_path(at, name), default)
        elif default is _MISSING:
            raise ValueError(f"{_join_path(at, name)}: expected a value, as it has no default")
        else:
            found[name] = default
    return found if isinstance(kind, Mapping) else kind(**found)


def _defaults_of(kind: Any, base: Any) -> dict[str, Any]:
    """Return the default values of a group by name."""
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
        raise TypeError(f"{at}: expected a dict type with keys of type str, got keys of {key_kind}")
    if isinstance(value, _Text):
        value = _guess(value)
    _check_group(value, at)
    current = base if isinstance(base, Mapping) and isinstance(value, _Overrides) else {}
    if isinstance(value, _Overrides):
        _check_names(value, current, at, current)
    read = {
        n: _read_value(kind, v, _join_path(at, n), current.get(n, _MISSING))
        for n, v in value.items()
    }
    return {**current, **read}


def _read_union(kinds: tuple[Any, ...], value: Any, at: str, base: Any) -> Any:
    if _NONE in kinds and (value is None or (isinstance(value, _Text) and _is_none(value))):
        return None
    others = [kind for kind in kinds if kind is not _NONE]
    if len(others) == 1:
        return _read_value(others[0], value, at, base)
    # An int stays an int in a union with float; text is a str only if nothing else matches.
    if isinstance(value, _Text):
        exact = value.strip().lstrip("+-").replace("_", "").isdecimal()
        others.sort(key=lambda kind: (kind is str, kind is int and not exact))
    else:
        others.sort(key=lambda kind: kind is not type(value))
    problems = []
    for kind in others:
        try:
            return _read_value(kind, value, at, base)
        except (TypeError, ValueError) as error:
            problems.append(str(error))
    raise ValueError("; or ".join(problems))


def _read_choice(choices: tuple[Any, ...], value: Any, at: str) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
        if isinstance(value, _Text) and value in (str(choice), str(choice).lower()):
            return choice
    near = nearest(str(value), [str(choice) for choice in choices])
    hint = f"; did you mean {near!r}?" if near else ""
    raise ValueError(f"{at}: expected one of {list(choices)}, got {value!r}{hint}")


def _read_sequence(origin: Any, arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if isinstance(value, _Text):
        value = _items(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{at}: expected a list, got {value!r}")
    kinds = list(arguments)
    if origin is not tuple or not kinds or kinds[-1] is Ellipsis:
        kinds = [kinds[0] if kinds else Any] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{at}: expected {len(kinds)} values, got {len(value)}: {value!r}")
    pairs = zip(kinds, value, strict=True)
    read = [_read_value(kind, part, f"{at}[{i}]") for i, (kind, part) in enumerate(pairs)]
    return read if origin is list else tuple(read)


def _read_scalar(kind: Any, value: Any, at: str) -> Any:
    if kind not in _EXPECTED:
        raise TypeError(f"{at}: values of the type {kind} cannot be read from JSON")
    if isinstance(value, np.generic):
        value = value.item()
    try:
        if isinstance(value, _Text):
            return _parse(kind, value)
    except (ValueError, KeyError):
        raise ValueError(f"{at}: expected {_EXPECTED[kind]}, got {str(value)!r}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6 is how many write a million
    if kind is Path and isinstance(value, str):
        return Path(value)
    # bool is a subclass of int, but True is not a number of steps.
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


def _guess(text: str) -> Any:
    """Parse a text as JSON, or return the text itself."""
    try:
        return None if _is_none(text) else json.loads(text)
    except json.JSONDecodeError:
        return str(text)


def _items(text: str) -> list[Any]:
    """Parse a list in JSON or Python syntax, or separated only by commas."""
    text = text.strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
        try:
            found: list[Any] = json.loads(f"[{text}]")
            return found
        except json.JSONDecodeError:
            pass
    return [_Text(part.strip()) for part in text.split(",") if part.strip()]


def _check_group(value: Any, at: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{at or 'config'}: expected a dict, got {value!r}")


def _check_names(value: Mapping[str, Any], names: Iterable[str], at: str, kind: Any) -> None:
    names = list(names)
    for name in value:
        if name in names:
            continue
        near = nearest(str(name), names) or _deeper(str(name), kind)
        hint = f"did you mean {_join_path(at, near)!r}?" if near else f"expected one of {names}"
        raise ValueError(f"unknown key {_join_path(at, str(name))!r}; {hint}")


def _is_none(text: str) -> bool:
    return text.lower() in ("none", "null")


# ------------------------------------------------------------------ keys


def _kinds_of(kind: Any) -> dict[str, Any]:
    """Return the types of a group's values by name."""
    if isinstance(kind, Mapping):
        return {name: _kind_of(default) for name, default in kind.items()}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _kind_of(default: Any) -> Any:
    """Return the type of values that may replace `default`."""
    if default is None:
        return Any
    if isinstance(default, Mapping):
        return default or dict[str, Any]
    if isinstance(default, (list, tuple)):
        kinds = {type(part) for part in default}
        element = kinds.pop() if len(kinds) == 1 and kinds <= _EXPECTED.keys() else Any
        return list[element] if isinstance(default, list) else tuple[element, ...]  # type: ignore[valid-type]
    if isinstance(default, PurePath):
        return Path
    return type(default.item() if isinstance(default, np.generic) else default)


def _deeper(name: str, kind: Any) -> str | None:
    """Return the path of a key like `name` in a nested group, in case the group was omitted."""
    for group, inner in _groups_of(kind).items():
        near = nearest(name, _kinds_of(inner)) or _deeper(name, inner)
        if near is not None:
            return _join_path(group, near)
    return None


def _groups_of(kind: Any) -> dict[str, Any]:
    kinds = _kinds_of(kind)
    return {n: k for n, k in kinds.items() if isinstance(k, Mapping) or _is_dataclass_type(k)}


def _is_dataclass_type(kind: Any) -> bool:
    """Return whether `kind` is a dataclass type, not an instance."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _join_path(at: str, name: str) -> str:
    """Return the path of a key of the group at `at`, which is empty for the config itself."""
    return f"{at}.{name}" if at else name
