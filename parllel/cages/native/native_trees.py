"""Trees of native vector environments: dicts and tuples of arrays that hold all environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from parllel.types import Tree


def pick(tree: Tree, index: Any) -> Tree:
    """Index each array of a tree. A list or mask returns copies; a single number returns views."""
    if isinstance(tree, dict):
        return {name: pick(part, index) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(pick(part, index) for part in tree)
    # Views follow the environment's memory: whoever keeps one beyond the next step must copy it.
    return np.asarray(tree)[index]


def rows_of(tree: Tree, n: int) -> list[Tree]:
    """Split a tree into views for each of n environments."""
    if isinstance(tree, np.ndarray):
        # Iterating over one dimension would give numpy scalars instead of 0-d arrays.
        return [*tree] if tree.ndim > 1 else [tree[k, ...] for k in range(n)]
    return [pick(tree, k) for k in range(n)]


def as_returned(space: gym.Space[Any], tree: Tree) -> Tree:
    """Return an observation as single environments return it: with numpy scalars in discrete spaces."""
    if isinstance(space, spaces.Dict):
        return {name: as_returned(part, tree[name]) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(as_returned, space, tree))
    return tree[()] if isinstance(space, spaces.Discrete) else tree


def copied(tree: Tree) -> Tree:
    """Copy a tree with all its arrays."""
    if isinstance(tree, dict):
        return {name: copied(part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(copied, tree))
    return np.array(tree)


def same_trees(one: Tree, other: Tree) -> bool:
    """Return whether all arrays of two trees are equal; NaN equals NaN."""
    if isinstance(one, dict):
        return all(same_trees(part, other[name]) for name, part in one.items())
    if isinstance(one, tuple):
        return all(map(same_trees, one, other))
    # Only NaN differs from itself.
    return bool(np.all((one == other) | ((one != one) & (other != other))))


def stacked(space: gym.Space[Any], actions: Sequence[Any]) -> Tree:
    """Stack the actions of single environments into one action for the vector environment."""
    if isinstance(space, spaces.Dict):
        return {
            name: stacked(inner, [action[name] for action in actions])
            for name, inner in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            stacked(inner, [action[i] for action in actions])
            for i, inner in enumerate(space.spaces)
        )
    # In the dtype of the space: numpy would choose one by the values, such as float64 for floats.
    return np.array(actions, space.dtype)


def put(tree: Tree, which: Any, one: Tree) -> None:
    """Write the values of a single environment to every entry in `which`, in place."""
    if isinstance(tree, dict):
        for name, part in tree.items():
            put(part, which, one[name])
    elif isinstance(tree, tuple):
        for part, value in zip(tree, one, strict=True):
            put(part, which, value)
    else:
        tree[which] = one


def final_observation(infos: dict[str, Any], i: int) -> Tree | None:
    """Return the final observation of an episode after a reset in the same step; None if missing."""
    final = infos.get("final_obs")
    # The caller raises, as `VectorStepper.finals` knows the name of the environment.
    if final is None:
        return None
    # gymnasium's own environments use an object array of observations, others whole arrays.
    if isinstance(final, np.ndarray) and final.dtype == object:
        return None if final[i] is None else copied(final[i])
    # Copied, as it is kept until the batch is collected, while the environment reuses the array.
    return copied(pick(final, i))
