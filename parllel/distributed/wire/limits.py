"""How much a message may ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from parllel.distributed.wire.wire_error import WireError, shown

# Beyond it, values could be nested more deeply than Python calls can be.
DEEPEST = 64
# Of an array without elements, whose message has the same few bytes for any shape.
_MAX_ROWS, _MAX_MISSING = 1 << 20, 1 << 31


@dataclass(frozen=True)
class Limits:
    """What a message may hold; checked before memory is taken for its values.

    A value takes at most 300 bytes beside those that the message has for it, so `items` bounds the memory for
    many small ones.

    Attributes:
        nbytes: of the message.
        depth: of lists, tuples, dicts and nodes inside each other, at most 64. An array that has not exactly
            one dimension counts as one of them.
        items: values and keys, those that hold others included.

    Raises:
        ValueError: if one is less than 1, or depth is more than 64.
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
    """Return how many elements, and lists of them, the nested lists of an array of this shape have."""
    total, n = 0, 1
    for length in shape:
        n *= length
        total += n
        if not n:
            break
    return total


def check_empty_shape(shape: Sequence[int]) -> None:
    """Check the shape of an array without elements, which takes a few bytes whatever its lengths are.

    shape: of lengths of at least 0, one of which is 0.

    Raises:
        WireError: for more than 2**20 rows of nothing, or if the lengths beside 0 multiply to over 2**31.
    """
    # Nothing is stored for such rows, but each is an object to whoever goes through them, or makes lists.
    if n_nested(shape) > _MAX_ROWS or math.prod(length or 1 for length in shape) > _MAX_MISSING:
        raise WireError(
            f"an array of shape {shown(tuple(shape))} without elements: expected at most {_MAX_ROWS} rows, "
            f"and lengths beside 0 whose product is at most {_MAX_MISSING}"
        )
