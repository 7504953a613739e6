"""Observations and actions of several environments, leaf by leaf in arrays [N, ...], and those of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.buffers.paths import leaf_paths, part_at
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.cages.spaces import example_of
from parllel.types import Tree


def count(tree: Tree) -> int:
    """Return N."""
    _, leaf = next(buffer_leaves(tree))
    return len(leaf)


def one_of(tree: Tree, i: int) -> Tree:
    """Return the i-th of [N, ...] in memory of its own."""
    return buffer_map(lambda leaf: np.asarray(leaf)[i].copy(), tree)


def stacked(parts: Sequence[Tree], space: gym.Space[Any] | None) -> Tree:
    """Return what several environments have, as [N, ...] in new memory.

    space: of one; parts that it has not are left out. None takes the parts of the first, of which there must
        be one.

    Raises:
        KeyError: if one has not all parts of the space; names it.
    """
    if space is None:
        return buffer_map(lambda *leaves: np.stack(leaves), *parts)
    # In the order and the types of the space, whatever nodes the parts came in.
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
