"""Names and paths in trees, one rule for every kind of node.

A node is a NamedTuple, a mapping, a tuple or a list. Items of tuples and lists are named `_0`, `_1`, ..., so
the observation of a Tuple space and the fields of a buffer that hold it have the same names. A path is the
names from the root of a tree to one of its parts; people write it with dots: `"env.observation._0"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from parllel.buffers.named_tuple import NamedTuple
from parllel.types import Tree

Path: TypeAlias = tuple[str, ...]
# Everything else is a leaf.
NODES = (NamedTuple, tuple, list, Mapping)


def parts_of(node: Tree) -> Mapping[str, Any] | None:
    """Return the parts of a node by name, None for a leaf.

    Example:
        >>> parts_of((3, [4])), parts_of(5)
        ({'_0': 3, '_1': [4]}, None)
    """
    if isinstance(node, NamedTuple):
        return node._asdict()
    if isinstance(node, (tuple, list)):
        return {f"_{i}": item for i, item in enumerate(node)}
    return node if isinstance(node, Mapping) else None


def dotted(path: Sequence[str], root: str = "") -> str:
    """Return a path as people write it, after that of the root."""
    return ".".join((root, *path) if root else path)


def leaf_paths(tree: Tree, root: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield `(path, leaf)` for every leaf, in order; None is no leaf."""
    found: list[tuple[Path, Any]] = []
    _find_leaves(tree, root, found)
    return iter(found)


def _find_leaves(tree: Tree, path: Path, found: list[tuple[Path, Any]]) -> None:
    # Into a list: generators within generators cost each leaf as many calls as it lies deep.
    parts = parts_of(tree)
    if parts is not None:
        for name, part in parts.items():
            # Keys of a Dict space need not be strings; `check_name` refuses others where fields are made.
            _find_leaves(part, (*path, str(name)), found)
    elif tree is not None:
        found.append((path, tree))


def part_at(tree: Tree, path: Path) -> Any:
    """Return the part that a path leads to; the tree itself for an empty one.

    A class made by typing.NamedTuple has its items by its own names, too.

    Raises:
        KeyError: names the part that is missing and those that are there.
    """
    node = tree
    for name in path:
        # Called for every observation and every answer of an agent, so without `parts_of`.
        try:
            if type(node) is dict:  # the most common by far
                node = node[name]
            elif isinstance(node, NamedTuple):
                node = node._get(name)
            elif isinstance(node, (tuple, list)):
                node = node[_position(node, name)]
            else:
                node = node[name]
        except (KeyError, IndexError, TypeError, ValueError):
            parts = parts_of(node)
            there = f"in {node!r}" if parts is None else f"one of {sorted(map(str, parts))}"
            # `from None`: the look-up that failed says nothing that this message does not.
            raise KeyError(f"no field {dotted(path)!r}: {name!r} is not {there}") from None
    return node


def field_at(tree: Tree, path: str) -> Any:
    """Return the field of a buffer at a dotted path; the whole for "".

    Raises:
        ValueError: if there is none; the message lists the fields that exist there.
    """
    try:
        return part_at(tree, tuple(path.split(".")) if path else ())
    except KeyError as error:
        raise ValueError(error.args[0]) from None


def _position(items: tuple[Any, ...] | list[Any], name: str) -> int:
    names = getattr(items, "_fields", ())
    if name in names:
        return int(names.index(name))
    if not name.startswith("_"):
        raise KeyError(name)
    return int(name[1:])
