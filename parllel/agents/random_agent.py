"""An agent that draws actions from a space, for tests, benchmarks and filling replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.buffers import NamedTuple, buffer_map
from parllel.types import State, Tree


class RandomAgent(Agent):
    """Draw every action from `action_space`, as `Space.sample` would.

    The noise of a batch is its actions. Discrete actions are int64; a Dict space gives a named
    tuple, a Tuple space a tuple. While evaluating, actions come from a second generator, so
    that an evaluation leaves the sampled actions as they would have been.

    Args:
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple.
        seed: for both generators.

    Raises:
        TypeError: if the space, or one inside it, is of another kind.
    """

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        self._space = self.action_space = action_space
        draw_actions(
            action_space, np.random.default_rng(0), (1,)
        )  # an unknown space is refused here
        # Spawned: `seed + 1` for the second would be the first stream of an agent with the next seed.
        sampling, evaluation = np.random.SeedSequence(seed).spawn(2)
        self._generators = {
            "sampling": np.random.default_rng(sampling),
            "evaluation": np.random.default_rng(evaluation),
        }
        self._current = "sampling"

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, None]:
        """Return `(action, None)`; the action is `noise` if there is some."""
        if noise is not None:
            return noise, None
        leaves: list[NDArray[Any]] = []
        buffer_map(leaves.append, observation)
        generator = self._generators[self._current]
        return draw_actions(self._space, generator, (len(leaves[0]),)), None

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Return the actions of a batch, leaves [T, B, ...]."""
        generator = self._generators[self._current] if seed is None else np.random.default_rng(seed)
        return draw_actions(self._space, generator, (T, B))

    def sample_mode(self) -> None:
        """Draw from the generator of the samples."""
        self._current = "sampling"

    def eval_mode(self) -> None:
        """Draw from the generator of evaluations."""
        self._current = "evaluation"

    def models(self) -> dict[str, Any]:
        """Return {}: it learns nothing."""
        return {}

    def state(self) -> State:
        """Return the state of both generators, as JSON values."""
        return {name: rng.bit_generator.state for name, rng in self._generators.items()}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        for name, generator in self._generators.items():
            generator.bit_generator.state = state[name]


def draw_actions(
    space: spaces.Space[Any], generator: np.random.Generator, size: tuple[int, ...]
) -> Tree:
    """Draw `size` actions from `space`; leaves have shape `size + shape of one action`."""
    for kind, draw_kind in _DRAWS.items():
        if isinstance(space, kind):
            return draw_kind(space, generator, size)
    kinds = ", ".join(kind.__name__ for kind in _DRAWS)
    raise TypeError(f"RandomAgent: expected a space of kind {kinds}, got {space!r}")


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
    # As Space.sample does: exponential from the one bound there is, normal where there is none.
    tail = generator.exponential(size=shape)
    # All kinds are drawn for all dimensions, so that the stream of numbers depends on the shape alone.
    action = np.where(below & above, inside, np.where(below, low + tail, high - tail))
    action = np.where(below | above, action, generator.normal(size=shape))
    # Rounding to a narrower type can lead out of the bounds.
    return np.clip(action.astype(space.dtype), space.low, space.high)


def _dict(space: Any, generator: np.random.Generator, size: tuple[int, ...]) -> Tree:
    return NamedTuple(
        **{key: draw_actions(inner, generator, size) for key, inner in space.spaces.items()}
    )


def _tuple(space: Any, generator: np.random.Generator, size: tuple[int, ...]) -> Tree:
    return tuple(draw_actions(inner, generator, size) for inner in space.spaces)


_DRAWS: dict[type[Any], Callable[..., Tree]] = {
    spaces.Discrete: _discrete,
    spaces.MultiDiscrete: _multi_discrete,
    spaces.MultiBinary: _multi_binary,
    spaces.Box: _box,
    spaces.Dict: _dict,
    spaces.Tuple: _tuple,
}
