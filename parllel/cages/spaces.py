"""Spaces: their examples, and the way of actions from a buffer to an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from parllel.types import Tree

# Given the rows of the action buffer, returns the actions of row t as environments want them.
ActionReader: TypeAlias = Callable[[int], list[Any]]


@dataclass(frozen=True)
class Spaces:
    """The spaces of one environment, and what error messages call it."""

    observation: gym.Space[Any]
    action: gym.Space[Any]
    name: str


def example_of(space: gym.Space[Any]) -> Tree:
    """Return a zero of the space: numpy values, dicts and tuples as the space nests them.

    Raises:
        TypeError: for spaces whose elements have no fixed size (Text, Sequence, Graph).
    """
    if isinstance(space, spaces.Dict):
        return {name: example_of(inner) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(example_of(inner) for inner in space.spaces)
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        zeros = np.zeros(space.shape or (), space.dtype)
        return zeros if zeros.ndim else zeros[()]
    raise TypeError(
        f"space {space}: expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple; "
        "wrap the environment so that its elements have a fixed size"
    )


def action_reader(space: gym.Space[Any], rows: Tree) -> ActionReader:
    """Return a function that reads row t as a list of actions, one per environment.

    rows: for each leaf of the space a sequence of numpy views `[n, ...]` by row, nested as the space.
    """
    if isinstance(space, spaces.Dict):
        readers = {name: action_reader(s, rows[name]) for name, s in space.spaces.items()}

        def read_dict(t: int) -> list[Any]:
            columns = [reader(t) for reader in readers.values()]
            return [dict(zip(readers, parts, strict=True)) for parts in zip(*columns, strict=True)]

        return read_dict
    if isinstance(space, spaces.Tuple):
        parts = [action_reader(s, rows[f"_{i}"]) for i, s in enumerate(space.spaces)]
        return lambda t: list(zip(*(reader(t) for reader in parts), strict=True))
    if isinstance(space, spaces.Discrete):
        memories = [row.data for row in rows]  # quicker than arrays, with the same numbers
        return lambda t: memories[t].tolist()  # type: ignore[no-any-return]
    dtype = space.dtype
    if not space.shape:  # arrays without dimensions, as the space draws them; a list has scalars
        return lambda t: [cell.reshape(()) for cell in rows[t].astype(dtype).reshape(-1, 1)]
    # A copy: an environment may keep its action, and the row will be written again.
    return lambda t: list(rows[t].astype(dtype))
