"""Names and paths in trees, by the same rule for every kind of node.

A node is a NamedTuple, a mapping, a tuple or a list. Items of tuples and lists are named `_0`, `_1`, ..., so
the observation of a Tuple space and its buffer fields have the same names. A path is the sequence of names
from the root of a tree to a part; its dotted form is `"env.observation._0"`.
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
    """Return a dict of the parts of a node, keyed by name, or None for a leaf.

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
    """Return the dotted form of a path, prefixed by the path of the root."""
    return ".".join((root, *path) if root else path)


def leaf_paths(tree: Tree, root: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield `(path, leaf)` for every leaf, in order. None is not a leaf."""
    found: list[tuple[Path, Any]] = []
    _find_leaves(tree, root, found)
    return iter(found)


def _find_leaves(tree: Tree, path: Path, found: list[tuple[Path, Any]]) -> None:
    # Into a list, because nested generators cost each leaf as many calls as it is deep.
    parts = parts_of(tree)
    if parts is not None:
        for name, part in parts.items():
            # Keys of a Dict space need not be strings; `check_name` rejects others when fields are created.
            _find_leaves(part, (*path, str(name)), found)
    elif tree is not None:
        found.append((path, tree))


def part_at(tree: Tree, path: Path) -> Any:
    """Return the part of a tree at a path; the tree itself for an empty path.

    Items of a typing.NamedTuple are also found by its own field names.

    Raises:
        KeyError: if there is no such part. The message names the missing part and the existing
            ones.
    """
    node = tree
    for name in path:
        # Called for every observation and every agent output, so without the cost of `parts_of`.
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
            # `from None`: the failed lookup adds nothing to this message.
            raise KeyError(f"no field {dotted(path)!r}: {name!r} is not {there}") from None
    return node


def field_at(tree: Tree, path: str) -> Any:
    """Return the field of a buffer at a dotted path; the whole buffer for "".

    Raises:
        ValueError: if there is no such field. The message lists the fields that exist.
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
