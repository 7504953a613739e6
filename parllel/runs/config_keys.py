"""The keys of a config, and the one that was probably meant by an unknown key.

The groups of a config are the dataclasses in it, or the dicts among the defaults of a dict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, get_type_hints

import numpy as np

from parllel.runs.names import nearest

SCALARS = (bool, int, float, str, Path, type(None))


def kinds_of(kind: Any) -> dict[str, Any]:
    """Return what the values of a group may be, by name."""
    if isinstance(kind, Mapping):
        return {name: kind_of(default) for name, default in kind.items()}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def kind_of(default: Any) -> Any:
    """Return what a value in the place of `default` may be."""
    if default is None:
        return Any
    if isinstance(default, Mapping):
        return default or dict[str, Any]
    if isinstance(default, (list, tuple)):
        kinds = {type(part) for part in default}
        element = kinds.pop() if len(kinds) == 1 and kinds <= set(SCALARS) else Any
        return list[element] if isinstance(default, list) else tuple[element, ...]  # type: ignore[valid-type]
    if isinstance(default, PurePath):
        return Path
    return type(default.item() if isinstance(default, np.generic) else default)


def deeper(name: str, kind: Any) -> str | None:
    """Return the path of a key like `name` in a group below, in case the group was left out."""
    for group, inner in _groups_of(kind).items():
        near = nearest(name, kinds_of(inner)) or deeper(name, inner)
        if near is not None:
            return join_path(group, near)
    return None


def _groups_of(kind: Any) -> dict[str, Any]:
    kinds = kinds_of(kind)
    return {n: k for n, k in kinds.items() if isinstance(k, Mapping) or is_dataclass_type(k)}


def key_paths(kind: Any) -> list[str]:
    """Return the paths of all keys of a config, those of groups and of what is in them."""
    groups = _groups_of(kind)
    below = [join_path(group, path) for group in groups for path in key_paths(groups[group])]
    return [*kinds_of(kind), *below]


def nearest_key(path: str, kind: Any) -> str | None:
    """Return the path of the key that was probably meant by `path`; None if there is none like it."""
    group, dot, rest = path.partition(".")
    groups = _groups_of(kind)
    if dot and group in groups:
        near = nearest_key(rest, groups[group])
        return None if near is None else join_path(group, near)
    return nearest(path, kinds_of(kind)) or deeper(path, kind)


def is_dataclass_type(kind: Any) -> bool:
    """Return whether `kind` is a dataclass, and no object of one."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def join_path(at: str, name: str) -> str:
    """Return the path of a key of the group at `at`, which is empty for the config itself."""
    return f"{at}.{name}" if at else name
