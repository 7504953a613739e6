"""Functions over trees of NamedTuples, mappings, tuples and lists. None stays None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from parllel.arrays.array import Array
from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple
from parllel.buffers.paths import NODES, leaf_paths, parts_of
from parllel.types import Tree


def buffer_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply `function` to each leaf and return a tree of the same structure.

    Any further trees must have the same names. They supply further arguments of the function.

    Raises:
        ValueError: if the names differ.
    """
    if not isinstance(tree, NODES):
        return None if tree is None else function(tree, *others)
    parts = parts_of(tree) or {}
    more = [_same_parts(other, parts) for other in others]
    mapped = {
        name: buffer_map(function, part, *(other[name] for other in more))
        for name, part in parts.items()
    }
    if isinstance(tree, NamedTuple):
        return tree._make(mapped)
    if isinstance(tree, (tuple, list)):
        make = getattr(tree, "_make", type(tree))  # `_make` of a typing.NamedTuple
        return make(mapped.values())
    return mapped


def named_map(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Like `buffer_map`, but convert nodes of every kind to NamedTuples.

    This way an agent sees a single kind of node, whether or not its observations are in a buffer.
    """
    if not isinstance(tree, NODES):
        return None if tree is None else function(tree)
    parts = parts_of(tree) or {}
    return NamedTuple(**{name: named_map(function, part) for name, part in parts.items()})


def _same_parts(tree: Tree, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    found = parts_of(tree)
    if found is None or set(found) != set(parts):
        there = type(tree).__name__ if found is None else sorted(found)
        raise ValueError(f"trees differ: fields {sorted(parts)} and {there}")
    return found


def buffer_leaves(tree: Tree, root: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `(dotted path, leaf)` for every leaf, in order. None is not a leaf.

    root: prefix of the paths.
    """
    before = (root,) if root else ()
    return iter([(".".join(path), leaf) for path, leaf in leaf_paths(tree, before)])


def buffer_asarray(tree: Tree) -> Tree:
    """Return the tree with numpy views as leaves, or copies where numpy needs them."""
    if isinstance(tree, NamedArrayTuple) and tree._lazy and tree._parent is not None:
        return tree._parent._numpy_at(tree._location)
    return buffer_map(np.asarray, tree)


def buffer_arrays(tree: Tree) -> list[Array]:
    """Return each Array of the tree once, even if fields share it. Whole Arrays are preferred to views."""
    arrays: dict[int, Array] = {}
    for _, leaf in buffer_leaves(tree):
        if isinstance(leaf, Array):
            found = arrays.setdefault(leaf.block.key, leaf)
            if found is not leaf and found.is_view:
                arrays[leaf.block.key] = leaf
    return list(arrays.values())


def buffer_rotate(tree: Tree) -> None:
    """Rotate every Array of the tree once."""
    for array in buffer_arrays(tree):
        array.rotate()


def buffer_close(tree: Tree) -> None:
    """Release the memory of every Array of the tree."""
    for array in buffer_arrays(tree):
        array.close()


def buffer_method(tree: Tree, name: str, *args: Any, **kwargs: Any) -> Tree:
    """Call a method of every leaf and return the tree of results."""
    return buffer_map(lambda leaf: getattr(leaf, name)(*args, **kwargs), tree)


def buffer_get_attr(tree: Tree, name: str) -> Tree:
    """Return the tree of the values that an attribute has in each leaf."""
    return buffer_map(lambda leaf: getattr(leaf, name), tree)


def buffer_set_attr(tree: Tree, name: str, value: Any) -> None:
    """Set an attribute of every leaf."""
    for _, leaf in buffer_leaves(tree):
        setattr(leaf, name, value)
