"""Conversion of an agent's choice to an action of the environment, and to JSON.

Yields the same numbers that `parllel.cages` reads from batches, so an operator plays the same episodes as its
policy does in process. It does not import that package, because that takes longer than a baseline's start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class GivenAction:
    """Convert an agent's choices to actions of a space.

    Args:
        space: the action space.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = space
        self._read = _reader(space)
        self._plain = isinstance(space, spaces.Discrete)

    def of(self, chosen: Any) -> Any:
        """Return `chosen` cast to the dtype of the space, and clipped to the bounds if the space is a Box.

        An action of a Discrete space is returned as a numpy scalar.

        Raises:
            ValueError: if `chosen` is not an action of the space.
        """
        try:
            return self._read(chosen)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError(f"expected an action of {self._space}, got {chosen!r}") from None

    def to_json(self, action: Any) -> Any:
        """Return the JSON values of an action that `of` returned."""
        if self._plain:
            return int(action)
        from parllel.distributed.wire.space_json import to_json

        return to_json(self._space, action)

    def from_json(self, values: Any) -> Any:
        """Return the action that JSON values represent. Nothing is clipped.

        Raises:
            ValueError: if the values represent no action of the space.
        """
        from parllel.distributed.wire.space_json import action_from_json

        return action_from_json(self._space, values)


def _reader(space: gym.Space[Any]) -> Callable[[Any], Any]:
    if isinstance(space, spaces.Discrete):
        return _discrete(space)
    if isinstance(space, spaces.Dict):
        readers = {name: _reader(part) for name, part in space.spaces.items()}
        return lambda chosen: {name: read(_parts(chosen)[name]) for name, read in readers.items()}
    if isinstance(space, spaces.Tuple):
        each = [_reader(part) for part in space.spaces]
        return lambda chosen: tuple(
            read(item) for read, item in zip(each, tuple(chosen), strict=True)
        )
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return _array(space)

    def contained(chosen: Any) -> Any:
        if not space.contains(chosen):
            raise ValueError("another space")
        return chosen

    return contained


def _parts(chosen: Any) -> Mapping[str, Any]:
    parts: Mapping[str, Any] = chosen._asdict() if hasattr(chosen, "_asdict") else chosen
    return parts


def _discrete(space: spaces.Discrete) -> Callable[[Any], Any]:
    first = int(space.start)
    last = first + int(space.n) - 1
    scalar = np.dtype(space.dtype).type

    def read(chosen: Any) -> Any:
        if type(chosen) is not int:
            found = np.asarray(chosen)
            if found.shape or found.dtype.kind not in "iub":
                raise ValueError("no integer")
            chosen = int(found)
        if not first <= chosen <= last:
            raise ValueError("no such action")
        return scalar(chosen)

    return read


def _array(space: Any) -> Callable[[Any], Any]:
    dtype, shape = space.dtype, space.shape
    # Clip before narrowing: out-of-range integers would wrap around in the narrow dtype.
    wide = np.dtype(np.int64) if dtype.kind in "iu" and dtype != np.uint64 else dtype
    clip = isinstance(space, spaces.Box)

    def read(chosen: Any) -> Any:
        leaf = np.asarray(chosen)
        if leaf.shape != shape:
            raise ValueError("another shape")
        action = np.empty(shape, wide)  # a new array each time: the environment may keep it
        np.copyto(action, leaf, casting="same_kind")
        if clip:
            # Not `np.clip`, which takes three times as long. NaN stays NaN.
            np.minimum(action, space.high, out=action)
            np.maximum(action, space.low, out=action)
        return action.astype(dtype, copy=False)

    return read
