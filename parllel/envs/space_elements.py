"""Random and placeholder elements of spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from parllel.types import Tree


def zero_of(space: gym.Space[Any]) -> Tree:
    """Return a placeholder observation: zeros, clipped to the bounds of the space.

    Raises:
        TypeError: for spaces whose elements have no fixed size.
    """
    if isinstance(space, spaces.Dict):
        return {name: zero_of(inner) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(zero_of(inner) for inner in space.spaces)
    if isinstance(space, spaces.Discrete):
        # A space need not contain 0, and gymnasium's checker warns about observations outside the space.
        return np.clip(np.int64(0), space.start, space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return np.clip(np.zeros_like(space.nvec), space.start, space.start + space.nvec - 1)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    raise TypeError(f"space {space}: expected elements of a fixed size")


def draw_actions(
    space: gym.Space[Any],
    generator: np.random.Generator,
    size: tuple[int, ...],
    dict_of: Callable[[dict[str, Tree]], Tree] = dict,
) -> Tree:
    """Draw `size` elements of `space` as `Space.sample` would; leaves have shape `size + element shape`.

    dict_of: builds the node of a Dict space from its parts by name. A Tuple space gives a tuple.

    Raises:
        TypeError: unless the space, and those inside it, are Discrete, MultiDiscrete, MultiBinary, Box, Dict
            or Tuple.
    """
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return dict_of({name: draw_actions(one, generator, size, dict_of) for name, one in parts})
    if isinstance(space, spaces.Tuple):
        return tuple(draw_actions(one, generator, size, dict_of) for one in space.spaces)
    for kind, draw_kind in _DRAWS.items():
        if isinstance(space, kind):
            return draw_kind(space, generator, size)
    kinds = ", ".join(kind.__name__ for kind in _DRAWS)
    raise TypeError(
        f"random actions: expected a space of kind {kinds}, Dict or Tuple, got {space!r}"
    )


def _discrete(space: Any, generator: np.random.Generator, size: tuple[int, ...]) -> Tree:
    return generator.integers(space.start, space.start + space.n, size=size, dtype=np.int64)


def _multi_discrete(space: Any, generator: np.random.Generator, size: tuple[int, ...]) -> Tree:
    return generator.integers(space.start, space.start + space.nvec, size=(*size, *space.shape))


def _multi_binary(space: Any, generator: np.random.Generator, size: tuple[int, ...]) -> Tree:
    return generator.integers(0, 2, size=(*size, *space.shape), dtype=space.dtype)


def _box(space: Any, generator: np.random.Generator, size: tuple[int, ...]) -> Tree:
    shape = (*size, *space.shape)
    if np.issubdtype(space.dtype, np.integer):
        widest: Any = np.uint64 if space.dtype == np.uint64 else np.int64
        low, high = space.low.astype(widest), space.high.astype(widest)
        drawn = generator.integers(low, high, size=shape, endpoint=True, dtype=widest)
        return drawn.astype(space.dtype)
    below, above = np.broadcast_arrays(space.bounded_below, space.bounded_above)
    low = np.where(below, space.low, 0.0).astype(np.float64)
    high = np.where(above, space.high, 0.0).astype(np.float64)
    # Scaling before the difference is taken keeps bounds near the largest float finite.
    uniform = generator.random(shape)
    inside = low * (1 - uniform) + high * uniform
    # As in Space.sample: exponential from a single bound, normal without bounds.
    tail = generator.exponential(size=shape)
    # All kinds are drawn for all dimensions, so that the random stream depends only on the shape.
    action = np.where(below & above, inside, np.where(below, low + tail, high - tail))
    action = np.where(below | above, action, generator.normal(size=shape))
    # Rounding to a narrower type can exceed the bounds.
    return np.clip(action.astype(space.dtype), space.low, space.high)


_DRAWS: dict[type[Any], Callable[..., Tree]] = {
    spaces.Discrete: _discrete,
    spaces.MultiDiscrete: _multi_discrete,
    spaces.MultiBinary: _multi_binary,
    spaces.Box: _box,
}
