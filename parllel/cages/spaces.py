"""Spaces: their examples, and the way of actions from a buffer to an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.buffers import parts_of
from parllel.types import Tree

# Given the rows of the action buffer, returns the actions of row t as environments want them.
ActionReader: TypeAlias = Callable[[int], list[Any]]
# Copies actions of one leaf, [..., *shape of the space], into the dtype of the space.
Caster: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Spaces:
    """The spaces of one environment, and what error messages call it."""

    observation: gym.Space[Any]
    action: gym.Space[Any]
    name: str


def check_alike(came: Spaces, expected: Spaces, index: int, first: int) -> None:
    """Raise ValueError unless the spaces of environment `index` are those of environment `first`."""
    if (came.observation, came.action) != (expected.observation, expected.action):
        raise ValueError(
            f"environment {index}: its spaces differ from those of environment {first}: expected "
            f"{expected.observation} and {expected.action}, got {came.observation} and {came.action}"
        )


def check_side_by_side(of_cages: Sequence[Spaces]) -> None:
    """Raise ValueError unless all cages of a sampler have the spaces of the first, whatever their names."""
    for i, came in enumerate(of_cages):
        first = of_cages[0]
        if (came.observation, came.action) != (first.observation, first.action):
            raise ValueError(
                f"cage {i} ({came.name}): expected the spaces of cage 0 ({first.name}), {first.observation} "
                f"and {first.action}, got {came.observation} and {came.action}; environments side by side "
                "share one batch and one agent"
            )


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


def stored_example(space: gym.Space[Any]) -> Tree:
    """Return a zero of the space in the types that a buffer holds: float64 as float32, int64 as int32.

    Integers of a space whose bounds lie beyond 32 bits stay int64, as they would wrap.

    Raises: as `example_of` does.
    """
    if isinstance(space, spaces.Dict):
        return {name: stored_example(inner) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stored_example(inner) for inner in space.spaces)
    example = np.asarray(example_of(space))
    dtype = example.dtype
    if dtype == np.float64:
        dtype = np.dtype(np.float32)
    elif dtype == np.int64 and _fits(space, np.iinfo(np.int32)):
        dtype = np.dtype(np.int32)
    narrowed = example.astype(dtype)
    return narrowed if narrowed.ndim else narrowed[()]


def _fits(space: gym.Space[Any], limits: np.iinfo[Any]) -> bool:
    low, high = integer_bounds(space)
    return int(np.min(low)) >= limits.min and int(np.max(high)) <= limits.max


def integer_bounds(space: gym.Space[Any]) -> tuple[Any, Any]:
    """Return the least and the greatest element of a space of integers, as arrays or numbers."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    assert isinstance(space, spaces.Box)
    return space.low, space.high


def action_reader(space: gym.Space[Any], rows: Tree) -> ActionReader:
    """Return a function that reads row t as a list of actions, one per environment.

    Actions outside of a Box are clipped to its bounds; the rows keep what was drawn.

    rows: for each leaf of the space a sequence of numpy views `[n, ...]` by row, nested as the space.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = parts_of(space.spaces) or {}
        readers = {name: action_reader(part, rows[name]) for name, part in inner.items()}
        if isinstance(space, spaces.Tuple):
            return lambda t: list(zip(*(reader(t) for reader in readers.values()), strict=True))

        def read_dict(t: int) -> list[Any]:
            columns = [reader(t) for reader in readers.values()]
            return [dict(zip(readers, parts, strict=True)) for parts in zip(*columns, strict=True)]

        return read_dict
    if isinstance(space, spaces.Discrete):
        memories = [row.data for row in rows]  # quicker than arrays, with the same numbers
        return lambda t: memories[t].tolist()  # type: ignore[no-any-return]
    cast = caster(space, rows[0].shape)
    if not space.shape:  # arrays without dimensions, as the space draws them; a list has scalars
        return lambda t: [cell.reshape(()) for cell in cast(rows[t]).reshape(-1, 1)]
    # A copy: an environment may keep its action, and the row will be written again.
    return lambda t: list(cast(rows[t]))


def caster(space: gym.Space[Any], shape: tuple[int, ...]) -> Caster:
    """Return what copies actions of a shape, clips them to the bounds if the space is a Box, and casts them.

    A distribution without bounds draws from outside of most Boxes; NaN stays NaN.
    """
    dtype = space.dtype
    if not isinstance(space, spaces.Box):
        return lambda actions: actions.astype(dtype)
    # Bounds of the shape of the actions, in two calls: a third of what np.clip takes for a row.
    low, high = (np.broadcast_to(bound, shape).copy() for bound in (space.low, space.high))
    minimum, maximum = np.minimum, np.maximum
    below, above = bool(space.bounded_below.any()), bool(space.bounded_above.any())

    def clip(actions: NDArray[Any]) -> NDArray[Any]:
        # Before the cast, which would let whole numbers wrap.
        inside: NDArray[Any] = minimum(actions, high)
        maximum(inside, low, out=inside)
        return inside.astype(dtype, copy=False)

    if below and above:
        return clip
    if above:
        return lambda actions: minimum(actions, high).astype(dtype, copy=False)
    if below:
        return lambda actions: maximum(actions, low).astype(dtype, copy=False)
    return lambda actions: actions.astype(dtype)
