"""Trees of buffers as gymnasium has them: dicts and tuples, in the dtypes of a space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from parllel.buffers.paths import parts_of
from parllel.types import Tree


def as_in_space(tree: Tree, space: gym.Space[Any] | None) -> Tree:
    """Return a tree with the nodes that gymnasium has, and the dtypes of `space`, if one is given.

    Leaves keep their leading dimensions. What a buffer narrowed is widened again, in a copy; other leaves,
    such as fractions that a transform made of whole numbers, stay as they are. Without a space a node whose
    parts are called `_0`, `_1`, ... becomes a tuple, every other node a dict.

    Raises:
        ValueError: if the parts of a node are not those of the space.
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
        raise ValueError(f"expected parts {sorted(inner)}, as {space} has, got {sorted(parts)}")
    else:
        # In the order of the space, as policies may go over them.
        names = list(inner)
    mapped = {name: as_in_space(parts[name], inner[name]) for name in names}
    numbered = bool(names) and names == [f"_{i}" for i in range(len(names))]
    tupled = numbered if space is None else isinstance(space, gym.spaces.Tuple)
    return tuple(mapped.values()) if tupled else mapped
