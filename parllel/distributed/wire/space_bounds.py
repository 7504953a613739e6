"""Bounds of gymnasium spaces: where a well-formed value is out of bounds."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.distributed.wire.json_numbers import element_error
from parllel.distributed.wire.wire_error import WireError, shown


@singledispatch
def check_bounds(space: Any, value: Any) -> None:
    """Check a value returned by `from_json` against a space's bounds.

    Raises:
        WireError: if a part is out of bounds. Names the path of the first such part.
        TypeError: for a space of an unknown type.
    """
    raise TypeError(f"no bounds are known for {type(space).__name__}")


@check_bounds.register
def _(space: spaces.Box, value: Any) -> None:
    _check_numbers(value, space.low, space.high)


@check_bounds.register
def _(space: spaces.Discrete, value: Any) -> None:
    _check_numbers(
        np.asarray(value), np.asarray(space.start), np.asarray(space.start + space.n - 1)
    )


@check_bounds.register
def _(space: spaces.MultiDiscrete, value: Any) -> None:
    _check_numbers(value, space.start, space.start + space.nvec - 1)


@check_bounds.register
def _(space: spaces.MultiBinary, value: Any) -> None:
    _check_numbers(value, np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8))


def _check_numbers(value: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> None:
    outside = ~((value >= low) & (value <= high))  # negated, so that NaN is outside
    if outside.any():
        i = int(np.flatnonzero(outside)[0])
        least, greatest, got = (array.reshape(-1)[i].item() for array in (low, high, value))
        raise element_error(f"from {least} to {greatest}", got, i, value.shape)


@check_bounds.register
def _(space: spaces.Text, value: Any) -> None:
    if not space.min_length <= len(value) <= space.max_length:
        raise WireError(
            f"expected {space.min_length} to {space.max_length} characters, got {len(value)}"
        )
    strange = set(value) - set(space.character_set)
    if strange:
        raise WireError(f"expected only characters in the space, got {shown(sorted(strange))}")


@check_bounds.register
def _(space: spaces.Dict, value: Any) -> None:
    for name, part in space.spaces.items():
        _check_part(part, value[name], name)


@check_bounds.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], value: Any) -> None:
    for i, (part, item) in enumerate(zip(space.spaces, value, strict=True)):
        _check_part(part, item, i)


@check_bounds.register
def _(space: spaces.Sequence, value: Any) -> None:
    for i, item in enumerate(value):
        _check_part(space.feature_space, item, i)


@check_bounds.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], value: Any) -> None:
    _check_part(space.spaces[value[0]], value[1], 1)


def _check_part(space: Any, value: Any, key: Any) -> None:
    try:
        check_bounds(space, value)
    except WireError as error:
        raise error.under(key) from None
