"""Conversion of gymnasium space values to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from parllel.buffers.named_tuple import NamedTuple
from parllel.distributed.wire.json_numbers import described, numbers_from_json, numbers_to_json
from parllel.distributed.wire.space_bounds import check_bounds
from parllel.distributed.wire.space_bounds import check_bounds as check_within
from parllel.distributed.wire.wire_error import WireError, shown
from parllel.types import Tree


def to_json(space: gym.Space[Any], value: Tree) -> Any:
    """Convert a value of a space to JSON values, from which `from_json` restores it.

    Arrays become nested lists, Dict values become objects, and Tuple, Sequence and OneOf values
    become lists. Floats are rounded to the space's dtype and written with the fewest digits that
    identify them. Non-finite floats become "NaN", "Infinity" and "-Infinity". Bounds are not
    checked.

    space: Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict, Tuple, OneOf, Sequence (not stacked), or a
        combination of these.

    Raises:
        WireError: for a value that does not fit the space: `position[3]: expected ..., got ...`.
    """
    return _to_json(space, value)


def from_json(space: gym.Space[Any], values: Any, *, check_bounds: bool = False) -> Tree:
    """Convert JSON values to a value of a space. Its arrays are new.

    check_bounds: whether to refuse out-of-bounds values as `space.contains` does: numbers outside a Box, NaN,
        actions that do not exist, texts that are too long.

    Raises:
        WireError: for values that do not fit the space: `position[3]: expected ..., got ...`.
    """
    value = _from_json(space, values)
    if check_bounds:
        check_within(space, value)
    return value


@singledispatch
def _to_json(space: Any, value: Any) -> Any:
    raise _no_json(space)


@singledispatch
def _from_json(space: Any, values: Any) -> Any:
    raise _no_json(space)


def _no_json(space: Any) -> WireError:
    return WireError(
        f"{type(space).__name__} has no JSON form; expected a Box, Discrete, MultiDiscrete, MultiBinary, "
        "Text, Dict, Tuple, OneOf, or Sequence that is not stacked"
    )


@_to_json.register(spaces.Box)
@_to_json.register(spaces.Discrete)
@_to_json.register(spaces.MultiDiscrete)
@_to_json.register(spaces.MultiBinary)
def _(space: Any, value: Any) -> Any:
    return numbers_to_json(value, space.dtype, space.shape)


@_from_json.register(spaces.Box)
@_from_json.register(spaces.MultiDiscrete)
@_from_json.register(spaces.MultiBinary)
def _(space: Any, values: Any) -> Any:
    return numbers_from_json(values, space.dtype, space.shape)


@_from_json.register
def _(space: spaces.Discrete, values: Any) -> Any:
    return numbers_from_json(values, space.dtype, ())[()]


@_to_json.register
@_from_json.register
def _(space: spaces.Text, value: Any) -> Any:
    if not isinstance(value, str):
        raise WireError(f"expected a string, got {described(value)}")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise WireError(f"expected text, got a lone surrogate in {shown(value)}")
    return str(value)


@_to_json.register
def _(space: spaces.Dict, value: Any) -> Any:
    if isinstance(value, NamedTuple):
        value = value._asdict()  # buffers use nodes in place of dicts
    return _each_key(_to_json, space, value)


@_from_json.register
def _(space: spaces.Dict, values: Any) -> Any:
    return _each_key(_from_json, space, values)


def _each_key(convert: Any, space: spaces.Dict, value: Any) -> dict[str, Any]:
    names = list(space.spaces)
    not_strings = [name for name in names if not isinstance(name, str)]
    if not_strings:
        raise WireError(
            f"expected a Dict space with keys of type str, as JSON requires, got {shown(not_strings)}"
        )
    if not isinstance(value, Mapping) or set(value) != set(names):
        raise WireError(f"expected an object with the keys {names}, got {described(value)}")
    converted = {}
    for name, part in space.spaces.items():
        try:
            converted[name] = convert(part, value[name])
        except WireError as error:
            raise error.under(name) from None
    return converted


@_to_json.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], value: Any) -> Any:
    return _each_item(_to_json, space.spaces, value)


@_from_json.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], values: Any) -> Any:
    return tuple(_each_item(_from_json, space.spaces, values))


def _each_item(convert: Any, parts: Any, value: Any) -> list[Any]:
    value = list(value) if isinstance(value, (tuple, NamedTuple)) else value
    if not isinstance(value, list) or len(value) != len(parts):
        raise WireError(f"expected a list of {len(parts)}, got {described(value)}")
    converted = []
    for i, (part, item) in enumerate(zip(parts, value, strict=True)):
        try:
            converted.append(convert(part, item))
        except WireError as error:
            raise error.under(i) from None
    return converted


@_to_json.register
def _(space: spaces.Sequence, value: Any) -> Any:
    return _each_of_any(_to_json, space, value)


@_from_json.register
def _(space: spaces.Sequence, values: Any) -> Any:
    return tuple(_each_of_any(_from_json, space, values))


def _each_of_any(convert: Any, space: spaces.Sequence, value: Any) -> list[Any]:
    if space.stack:
        raise _no_json(space)
    if not isinstance(value, (list, tuple)):
        raise WireError(f"expected a list, got {described(value)}")
    return _each_item(convert, [space.feature_space] * len(value), value)


@_to_json.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], value: Any) -> Any:
    return _each_item(_to_json, _chosen(space, value), value)


@_from_json.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], values: Any) -> Any:
    return tuple(_each_item(_from_json, _chosen(space, values), values))


def _chosen(space: spaces.OneOf[Any], value: Any) -> list[gym.Space[Any]]:
    """Return the spaces of a value's two items: the index of the chosen space, and a value of that space."""
    n = len(space.spaces)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise WireError(f"expected a list of 2, got {described(value)}")
    if isinstance(value[0], bool) or not isinstance(value[0], (int, np.integer)):
        raise WireError(f"expected an integer from 0 to {n - 1}, got {described(value[0])}").under(
            0
        )
    if not 0 <= value[0] < n:
        raise WireError(f"expected an integer from 0 to {n - 1}, got {value[0]}").under(0)
    return [spaces.Discrete(n), space.spaces[value[0]]]


def action_from_json(space: gym.Space[Any], values: Any, *, clip: bool = False) -> Tree:
    """Convert JSON values to an action in the form that cages pass to an environment.

    Like `from_json` with a check of bounds. Arrays are new.

    clip: whether to clip numbers to the bounds of a Box, as cages do, because a Gaussian policy
        exceeds any bound at times. Leave it False for people, who can be asked again.

    Raises:
        WireError: for values that are not in the space: `force[1]: expected ..., got ...`.
    """
    action = _action(space, from_json(space, values), clip)
    check_bounds(space, action)
    return action


def _action(space: gym.Space[Any], value: Any, clip: bool) -> Tree:
    if isinstance(space, spaces.Dict):
        return {name: _action(part, value[name], clip) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_action(part, v, clip) for part, v in zip(space.spaces, value, strict=True))
    if clip and isinstance(space, spaces.Box):
        # In place, since numpy returns scalars for 0-d arrays. NaN stays NaN, which the bounds refuse.
        np.minimum(value, space.high, out=value)
        np.maximum(value, space.low, out=value)
    return value
