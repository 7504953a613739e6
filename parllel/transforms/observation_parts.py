"""Parts of observation trees that are in no buffer, such as final observations."""

from __future__ import annotations

from typing import Any

from parllel.buffers import NamedTuple, buffer_leaves
from parllel.types import Tree


def part_below(path: str, root: str) -> str | None:
    """Return what follows `root` in a dotted path, "" if nothing does; None for a path elsewhere."""
    if path == root:
        return ""
    return path.removeprefix(f"{root}.") if path.startswith(f"{root}.") else None


def part_at(observation: Tree, path: str) -> Tree:
    """Return the part of a tree of NamedTuples or dicts at a dotted path; the whole for "".

    Raises:
        ValueError: if there is none; the message lists the leaves.
    """
    node = observation
    for name in path.split(".") if path else ():
        fields = _fields_of(node)
        if name not in fields:
            leaves = [at for at, _ in buffer_leaves(observation)]
            raise ValueError(f"observation: expected a part {path!r}, got leaves {leaves}")
        node = fields[name]
    return node


def with_part(observation: Tree, path: str, value: Tree) -> Tree:
    """Return a tree in which the part at a dotted path is `value`; "" is the whole."""
    if not path:
        return value
    name, _, rest = path.partition(".")
    fields = _fields_of(observation)
    fields = {**fields, name: with_part(fields.get(name), rest, value) if rest else value}
    return observation._make(fields) if isinstance(observation, NamedTuple) else fields


def _fields_of(node: Tree) -> dict[str, Any]:
    if isinstance(node, NamedTuple):
        return node._asdict()
    return node if isinstance(node, dict) else {}
