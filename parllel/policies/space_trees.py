"""Conversion of trees to gymnasium's nodes and dtypes, and stacks of them over environments [N, ...]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.buffers.paths import leaf_paths, part_at, parts_of
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.cages.spaces import example_of
from parllel.types import Tree


def as_in_space(tree: Tree, space: gym.Space[Any] | None) -> Tree:
    """Convert a tree to gymnasium's nodes and the dtypes of `space`, if given.

    Leaves keep their leading dimensions. Leaves that a buffer narrowed are widened again, in a copy; others,
    such as floats that a transform computed from integers, are unchanged. Without a space, a node with parts
    `_0`, `_1`, ... becomes a tuple, every other node a dict.

    Raises:
        ValueError: if the parts of a node differ from the space's.
    """
    parts = parts_of(tree)
    inner = parts_of(getattr(space, "spaces", None))
    if space is not None and (parts is None) != (inner is None):
        raise ValueError(f"expected a tree of {space}, got {tree!r}")
    if parts is None:
        wide = None if space is None else space.dtype
        return tree if wide is None or not np.can_cast(tree.dtype, wide) else np.asarray(tree, wide)
    if inner is None:
        names, inner = list(parts), dict.fromkeys(parts)
    elif set(parts) != set(inner):
        raise ValueError(f"expected the parts {sorted(inner)} of {space}, got {sorted(parts)}")
    else:
        # In the order of the space, because policies may iterate over them.
        names = list(inner)
    mapped = {name: as_in_space(parts[name], inner[name]) for name in names}
    numbered = bool(names) and names == [f"_{i}" for i in range(len(names))]
    tupled = numbered if space is None else isinstance(space, gym.spaces.Tuple)
    return tuple(mapped.values()) if tupled else mapped


def count(tree: Tree) -> int:
    """Return N, the number of environments."""
    _, leaf = next(buffer_leaves(tree))
    return len(leaf)


def one_of(tree: Tree, i: int) -> Tree:
    """Return a copy of row i of leaves [N, ...]."""
    return buffer_map(lambda leaf: np.asarray(leaf)[i].copy(), tree)


def stacked(parts: Sequence[Tree], space: gym.Space[Any] | None) -> Tree:
    """Stack the trees of several environments to leaves [N, ...], in new memory.

    space: of one environment; parts that it lacks are dropped. None takes the parts of the first tree, which
        must exist.

    Raises:
        KeyError: if a tree lacks a part of the space; names the part.
    """
    if space is None:
        return buffer_map(lambda *leaves: np.stack(leaves), *parts)
    # In the order and node types of the space, whatever the nodes of the parts.
    example = example_of(space)
    arrays = iter(
        [
            np.stack([np.asarray(part_at(part, path)) for part in parts])
            if parts
            else np.zeros((0, *np.shape(leaf)), leaf.dtype)
            for path, leaf in leaf_paths(example)
        ]
    )
    return buffer_map(lambda _: next(arrays), example)
