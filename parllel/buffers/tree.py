"""Functions over trees: nodes are NamedTuples, dicts, tuples and lists; None stays None."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from parllel.arrays import Array
from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple
from parllel.types import Tree


def buffer_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return a tree of the same nodes with `function` applied to each leaf.

    Further trees of the same structure give further arguments.

    Raises:
        ValueError: if the structures differ.
    """
    if tree is None:
        return None
    if isinstance(tree, NamedTuple):
        parts = [_fields_of(other, tree._fields) for other in others]
        return tree._make(
            {
                name: buffer_map(function, value, *(part[name] for part in parts))
                for name, value in tree._asdict().items()
            }
        )
    if isinstance(tree, dict):
        parts = [_fields_of(other, tuple(tree)) for other in others]
        return {
            name: buffer_map(function, value, *(part[name] for part in parts))
            for name, value in tree.items()
        }
    if isinstance(tree, (tuple, list)):
        for other in others:
            if len(other) != len(tree):
                raise ValueError(f"trees differ: {len(tree)} and {len(other)} items")
        make = getattr(tree, "_make", type(tree))  # a class made by typing.NamedTuple has the first
        return make([buffer_map(function, *values) for values in zip(tree, *others, strict=True)])
    return function(tree, *others)


def _fields_of(tree: Tree, fields: tuple[str, ...]) -> dict[str, Any]:
    found = tree._asdict() if isinstance(tree, NamedTuple) else tree
    if not isinstance(found, dict) or set(found) != set(fields):
        there = sorted(found) if isinstance(found, dict) else type(tree).__name__
        raise ValueError(f"trees differ: fields {sorted(fields)} and {there}")
    return found


def buffer_leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `(dotted path, leaf)` for every leaf, in order; None is no leaf."""
    if tree is None:
        return
    if isinstance(tree, NamedTuple):
        tree = tree._asdict()
    if isinstance(tree, (tuple, list)):
        tree = {f"_{i}": value for i, value in enumerate(tree)}
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from buffer_leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, tree


def buffer_asarray(tree: Tree) -> Tree:
    """Return the tree with numpy views (or copies, where numpy makes them) as its leaves."""
    if isinstance(tree, NamedArrayTuple) and tree._lazy and tree._parent is not None:
        return tree._parent._numpy_at(tree._location)
    return buffer_map(np.asarray, tree)


def buffer_arrays(tree: Tree) -> list[Array]:
    """Return each Array of the tree once, even if fields share it; a whole Array rather than its views."""
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
    """Let go of the memory of every Array of the tree."""
    for array in buffer_arrays(tree):
        array.close()


def buffer_method(tree: Tree, name: str, *args: Any, **kwargs: Any) -> Tree:
    """Call a method of every leaf and return the tree of results."""
    return buffer_map(lambda leaf: getattr(leaf, name)(*args, **kwargs), tree)


def buffer_get_attr(tree: Tree, name: str) -> Tree:
    """Return the tree of an attribute of every leaf."""
    return buffer_map(lambda leaf: getattr(leaf, name), tree)


def buffer_set_attr(tree: Tree, name: str, value: Any) -> None:
    """Set an attribute of every leaf."""
    for _, leaf in buffer_leaves(tree):
        setattr(leaf, name, value)
