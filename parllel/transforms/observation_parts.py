"""Find and replace parts of observation trees outside buffers, such as final observations."""

from __future__ import annotations

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import parts_of
from parllel.types import Tree


def part_below(path: str, root: str) -> str | None:
    """Return what follows `root` in a dotted path, "" if that is all of it; None for other paths."""
    if path == root:
        return ""
    return path.removeprefix(f"{root}.") if path.startswith(f"{root}.") else None


def with_part(observation: Tree, path: str, value: Tree) -> Tree:
    """Return a tree with `value` at a dotted path, adding the part if there is none; "" is the whole."""
    if not path:
        return value
    name, _, rest = path.partition(".")
    fields = parts_of(observation) or {}
    fields = {**fields, name: with_part(fields.get(name), rest, value) if rest else value}
    return observation._make(fields) if isinstance(observation, NamedTuple) else fields
