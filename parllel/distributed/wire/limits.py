"""Limits on the size of a message and its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from parllel.distributed.wire.wire_error import WireError, shown

# Deeper nesting could exceed Python's recursion limit.
DEEPEST = 64
# For arrays without elements, whose messages are equally short for every shape.
_MAX_ROWS, _MAX_MISSING = 1 << 20, 1 << 31


@dataclass(frozen=True)
class Limits:
    """Limits on a message, checked before memory is allocated for its values.

    A value takes at most 300 bytes in addition to its bytes in the message, so `items` bounds the memory
    taken by many small values.

    Attributes:
        nbytes: maximum size of the message in bytes.
        depth: maximum nesting of lists, tuples, dicts and nodes, at most 64. An array counts as one
            level unless it has exactly one dimension.
        items: maximum number of values and keys, including containers.

    Raises:
        ValueError: if a limit is less than 1, or depth exceeds 64.
    """

    nbytes: int = 1 << 28
    depth: int = DEEPEST
    items: int = 100_000

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"Limits.{name}: expected an int of at least 1, got {value!r}")
        if self.depth > DEEPEST:
            raise ValueError(f"Limits.depth: expected at most {DEEPEST}, got {self.depth}")


def n_nested(shape: Sequence[int]) -> int:
    """Return the number of items, lists and elements, in an array's nested lists."""
    total, n = 0, 1
    for length in shape:
        n *= length
        total += n
        if not n:
            break
    return total


def check_empty_shape(shape: Sequence[int]) -> None:
    """Check the shape of an array without elements, which takes a few bytes for any shape.

    shape: non-negative lengths, at least one of which is 0.

    Raises:
        WireError: for more than 2**20 empty rows, or nonzero lengths whose product exceeds 2**31.
    """
    # Empty rows take no memory in the array, but iteration and `tolist` create an object for each.
    if n_nested(shape) > _MAX_ROWS or math.prod(length or 1 for length in shape) > _MAX_MISSING:
        raise WireError(
            f"empty array of shape {shown(tuple(shape))}: expected at most {_MAX_ROWS} rows, and nonzero "
            f"lengths whose product is at most {_MAX_MISSING}"
        )
