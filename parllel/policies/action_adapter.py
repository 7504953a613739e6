"""Conversion of a policy's actions to what an environment expects, as cages do it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from parllel.buffers.paths import leaf_paths, part_at, parts_of
from parllel.buffers.tree import buffer_map
from parllel.cages.spaces import action_reader, example_of
from parllel.types import Tree


class ActionAdapter:
    """Converts a policy's actions for one environment: clips them to a Box and casts them.

    Args:
        space: the action space.

    Raises:
        TypeError: for spaces whose elements have no fixed size.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = space
        # A batch of one row and one environment, so that the code of the cages can read it.
        rows = _rows(example_of(space))
        self._leaves = list(leaf_paths(rows))
        self._read = action_reader(space, buffer_map(lambda row: [row], rows))

    def of(self, chosen: Tree) -> Any:
        """Return one action, `chosen`, as the environment expects it. Shares no memory with it.

        Raises:
            ValueError: if parts, shapes or kinds of numbers differ from the space's.
        """
        try:
            for path, row in self._leaves:
                leaf = np.asarray(part_at(chosen, path))
                if leaf.shape != row.shape[1:]:
                    raise ValueError("another shape")
                np.copyto(row[0, ...], leaf, casting="same_kind")
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"expected an action of {self._space}, got {chosen!r}") from None
        return self._read(0)[0]


def _rows(example: Tree) -> Tree:
    """Return an array [1, ...] for each leaf, with dicts as nodes."""
    parts = parts_of(example)
    if parts is not None:
        return {name: _rows(part) for name, part in parts.items()}
    # At full width, otherwise out-of-range integers would wrap around before they are clipped.
    narrow = example.dtype.kind in "iu" and example.dtype != np.uint64
    return np.zeros((1, *example.shape), np.int64 if narrow else example.dtype)
