"""Configurations: nested dataclasses or dicts, from and to JSON values; every key and type is checked.

What a value may be is said by the annotation of its field, or in a dict by the default in its place:

    dataclass, dict of defaults     a dict with those keys or some of them; the others keep their defaults
    bool, int, float, str, Path     that; an int for a float as well, but no bool for an int
    X | None, int | str, Literal    None; one of them, exact types first; one of the choices
    list[X], tuple[X, ...], tuple[X, Y], Sequence[X]      a list, read into what is declared
    dict[str, X]                    any keys
    Any                             anything
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np

from parllel.runs.config_keys import is_dataclass_type, join_path
from parllel.runs.config_reading import Changes, Text, read_value

Config = TypeVar("Config")


def read_config(kind: type[Config] | Config, values: Mapping[str, Any]) -> Config:
    """Return a config with `values`, and with defaults where there are none.

    Args:
        kind: a dataclass type; or a dict of defaults, where None stands for anything, and elements of a list
            are to be like those that are there.
        values: JSON values, as from `config_values`.

    Raises:
        ValueError: for an unknown key (the message names its path and the nearest right one), a missing one,
            and a value that is none of the choices.
        TypeError: for a value of another type; names the path, what was expected and what came.
    """
    if not isinstance(kind, Mapping) and not is_dataclass_type(kind):
        raise TypeError(f"kind: expected a dataclass or a dict of defaults, got {kind!r}")
    # A copy, as lists and dicts among the defaults must not be shared between configs.
    config: Config = read_value(copy.deepcopy(kind), values, "")
    return config


def change_config(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a copy of a config with some values changed.

    Args:
        config: a dataclass object or a dict.
        changes: by path: `{"ppo.learning_rate": 1e-4}`. A string is read as what is expected there, so
            "1e-4", "true", "none" and "[64, 64]" come out as that. A path leads to what is there: to add a
            key to a dict, give all of the dict.

    Raises:
        ValueError, TypeError: as `read_config` does.
    """
    if not _is_config(config):
        raise TypeError(f"config: expected a dataclass object or a dict, got {config!r}")
    nested = Changes()
    for path, value in changes.items():
        _insert(nested, path, Text(value) if type(value) is str else value)
    kind = config if isinstance(config, Mapping) else type(config)
    changed: Config = read_value(kind, nested, "", copy.deepcopy(config))
    return changed


def config_values(config: Any) -> dict[str, Any]:
    """Return the JSON values of a config: what `read_config` makes an equal one of.

    Raises:
        TypeError: if it holds something else; names the path.
    """
    if not _is_config(config):
        raise TypeError(f"config: expected a dataclass object or a dict, got {config!r}")
    values: dict[str, Any] = _values(config, "")
    return values


def _values(value: Any, at: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # What `__init__` does not take could not be given back to it.
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _values(getattr(value, name), join_path(at, name)) for name in fields}
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"{at or 'config'}: keys must be strings, got {name!r}")
        return {name: _values(part, join_path(at, name)) for name, part in value.items()}
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


def _insert(group: Changes, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for name in above:
        group = group.setdefault(name, Changes())
        if not isinstance(group, Changes):
            raise ValueError(f"{path}: {name!r} is changed as a whole as well")
    if last in group:
        raise ValueError(f"{path}: values below it are changed as well")
    group[last] = value


def _is_config(value: Any) -> bool:
    return isinstance(value, Mapping) or is_dataclass_type(type(value))
