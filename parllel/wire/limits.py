"""How much a message may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

# Beyond it, values could be nested more deeply than Python calls can be.
DEEPEST = 64


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
