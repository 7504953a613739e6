"""Examples of spaces, and readers that convert a buffer's actions to what environments expect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.buffers.paths import part_at, parts_of
from parllel.types import Tree

# Returns the actions of row t, one per environment, in the form that environments expect.
ActionReader: TypeAlias = Callable[[int], list[Any]]
# Returns actions [n, ...] in the form that environments expect, stacked.
StackReader: TypeAlias = Callable[[Tree], Tree]
# Copies actions of one leaf, [..., *shape of the space], into the dtype of the space.
Caster: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Spaces:
    """The spaces of one environment, and the environment's name for error messages."""

    observation: gym.Space[Any]
    action: gym.Space[Any]
    name: str


class UnequalSpacesError(ValueError, RuntimeError):
    """Environments that are stepped together have different spaces.

    Gymnasium's vector environments raise a RuntimeError.
    """


def check_alike(came: Spaces, expected: Spaces, index: int, first: int) -> None:
    """Check that the spaces of environment `index` equal those of `first`. Raises UnequalSpacesError."""
    if (came.observation, came.action) != (expected.observation, expected.action):
        raise UnequalSpacesError(
            f"environment {index}: its spaces differ from those of environment {first}: expected "
            f"{expected.observation} and {expected.action}, got {came.observation} and {came.action}"
        )


def check_side_by_side(of_cages: Sequence[Spaces]) -> None:
    """Check that all cages of a sampler have equal spaces; names may differ. Raises ValueError."""
    for i, came in enumerate(of_cages):
        first = of_cages[0]
        if (came.observation, came.action) != (first.observation, first.action):
            raise ValueError(
                f"cage {i} ({came.name}): expected the spaces of cage 0 ({first.name}), {first.observation} "
                f"and {first.action}, got {came.observation} and {came.action}; the cages of a sampler "
                "share one batch and one agent"
            )


def example_of(space: gym.Space[Any]) -> Tree:
    """Return zeros shaped like an element of a space: numpy values, nested in dicts and tuples.

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
    """Return zeros of the space in a buffer's dtypes: float32 for float64, int32 for int64.

    Integers stay int64 if the space's bounds exceed 32 bits, where int32 would wrap around.

    Raises:
        TypeError: for spaces whose elements have no fixed size, as in `example_of`.
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
    """Return the inclusive bounds of a space of integers, as arrays or numbers."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    assert isinstance(space, spaces.Box)
    return space.low, space.high


def action_reader(space: gym.Space[Any], rows: Tree, *, raw: bool = False) -> ActionReader:
    """Return a function that reads row t as a list of actions, one per environment.

    Actions outside the bounds of a Box are clipped; the rows keep the agent's values. Discrete actions are
    numpy scalars of the space's dtype, as its `sample` returns them.

    rows: for each leaf of the space, a sequence of numpy views [n, ...] by row; nested like the space.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = parts_of(space.spaces) or {}
        readers = {name: action_reader(part, rows[name], raw=raw) for name, part in inner.items()}
        if isinstance(space, spaces.Tuple):
            return lambda t: list(zip(*(reader(t) for reader in readers.values()), strict=True))

        def read_dict(t: int) -> list[Any]:
            columns = [reader(t) for reader in readers.values()]
            return [dict(zip(readers, parts, strict=True)) for parts in zip(*columns, strict=True)]

        return read_dict
    if isinstance(space, spaces.Discrete):
        # `tolist` is faster on a memoryview than on an array.
        memories, scalar_of = [row.data for row in rows], _Scalars(space).__getitem__
        if rows[0].dtype.kind not in "iu":  # for the environment to refuse
            return lambda t: memories[t].tolist()  # type: ignore[no-any-return]
        return lambda t: list(map(scalar_of, memories[t].tolist()))
    cast = caster(space, rows[0].shape, raw=raw)
    # `list` of a one-dimensional array gives numpy scalars, but such a space samples 0-d arrays.
    if not space.shape and not raw:
        return lambda t: [cell.reshape(()) for cell in cast(rows[t]).reshape(-1, 1)]
    # `cast` copies: an environment may keep its action, and the next batch overwrites the row.
    return lambda t: list(cast(rows[t]))


def discrete_scalar(space: spaces.Discrete, action: int) -> Any:
    """Return an action as a numpy scalar of the space's dtype, as its `sample` does.

    Environments get it instead of an int: arithmetic may round differently, and CartPole's check of an int
    takes longer. A number outside the space stays an int, so that the environment refuses it as it is.
    """
    low, high = integer_bounds(space)
    return np.dtype(space.dtype).type(action) if low <= action <= high else action


class _Scalars(dict[int, Any]):
    """Look up `discrete_scalar` of a number; those of small spaces are made beforehand."""

    def __init__(self, space: spaces.Discrete) -> None:
        self._space = space
        first = int(space.start)
        numbers = range(first, first + min(int(space.n), 1024))
        super().__init__((number, discrete_scalar(space, number)) for number in numbers)

    def __missing__(self, action: int) -> Any:
        return discrete_scalar(self._space, action)


def stack_reader(space: gym.Space[Any], n: int, *, raw: bool = False) -> StackReader:
    """Return a function that converts a buffer's actions, [n, ...], to a batch for a vector environment.

    The values equal those of `action_reader`: they are clipped to a Box, unless `raw`, cast to its
    dtype and nested like the space. They are copies.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = parts_of(space.spaces) or {}
        readers = {name: stack_reader(part, n, raw=raw) for name, part in inner.items()}

        def read(actions: Tree) -> Tree:
            parts = {name: reader(part_at(actions, (name,))) for name, reader in readers.items()}
            return tuple(parts.values()) if isinstance(space, spaces.Tuple) else parts

        return read
    if isinstance(space, spaces.Discrete):
        dtype = space.dtype
        return lambda actions: actions.astype(dtype)
    return caster(space, (n, *(space.shape or ())), raw=raw)


def stack_rows_reader(
    space: gym.Space[Any], rows: Tree, *, raw: bool = False
) -> Callable[[int], Tree]:
    """Return a function that reads row t as `stack_reader` does.

    rows: for each leaf of the space, a sequence of numpy views [n, ...] by row; nested like the space.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = parts_of(space.spaces) or {}
        readers = {
            name: stack_rows_reader(part, rows[name], raw=raw) for name, part in inner.items()
        }
        if isinstance(space, spaces.Tuple):
            return lambda t: tuple(reader(t) for reader in readers.values())
        return lambda t: {name: reader(t) for name, reader in readers.items()}
    read = stack_reader(space, len(rows[0]), raw=raw)
    return lambda t: read(rows[t])


def caster(space: gym.Space[Any], shape: tuple[int, ...], *, raw: bool = False) -> Caster:
    """Return a function that copies actions of this shape, clips them to the bounds of a Box and casts them.

    A normal distribution, for example, samples actions outside the bounds of most Boxes. NaN stays NaN.
    With `raw` they are only copied and cast.
    """
    dtype = space.dtype
    if raw or not isinstance(space, spaces.Box):
        return lambda actions: actions.astype(dtype)
    # minimum and maximum with bounds of the actions' shape take a third of the time of np.clip.
    low, high = (np.broadcast_to(bound, shape).copy() for bound in (space.low, space.high))
    minimum, maximum = np.minimum, np.maximum
    below, above = bool(space.bounded_below.any()), bool(space.bounded_above.any())

    def clip_both(actions: NDArray[Any]) -> NDArray[Any]:
        # Clipped before the cast, in which integers would wrap around.
        inside: NDArray[Any] = minimum(actions, high)
        maximum(inside, low, out=inside)
        return inside.astype(dtype, copy=False)

    if below and above:
        return clip_both
    if above:
        return lambda actions: minimum(actions, high).astype(dtype, copy=False)
    if below:
        return lambda actions: maximum(actions, low).astype(dtype, copy=False)
    return lambda actions: actions.astype(dtype)
