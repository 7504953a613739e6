"""Checks of a message's size by the heads of its values, before any value is created.

A head is the type byte of a MessagePack value and the length after it.
"""

from __future__ import annotations

from typing import NamedTuple

from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.wire_error import WireError


class _Head(NamedTuple):
    """Meaning of a value's first byte.

    Attributes:
        width: size in bytes of the length that follows; 0 if the first byte contains the length.
        number: that length, for a width of 0.
        per: values per unit of length: 0 for a leaf, whose length is in bytes; 1 for a list; 2 for a dict.
        extra: bytes that the length does not include.
    """

    width: int
    number: int = 0
    per: int = 0
    extra: int = 0


def _heads() -> list[_Head | None]:
    """Return the head for each first byte (https://github.com/msgpack/msgpack/blob/master/spec.md)."""
    heads: list[_Head | None] = [_Head(0)] * 256
    for byte in range(16):
        heads[0x80 + byte] = _Head(0, byte, per=2)
        heads[0x90 + byte] = _Head(0, byte, per=1)
    for byte in range(32):
        heads[0xA0 + byte] = _Head(0, byte)
    heads[0xC1] = None
    for i, width in enumerate((1, 2, 4)):
        heads[0xC4 + i] = _Head(width)  # bytes
        heads[0xC7 + i] = _Head(width, extra=1)  # an extension, with its code
        heads[0xD9 + i] = _Head(width)  # str
    for first, lengths in ((0xCA, (4, 8)), (0xCC, (1, 2, 4, 8)), (0xD0, (1, 2, 4, 8))):
        for i, length in enumerate(lengths):
            heads[first + i] = _Head(0, length)
    for i, length in enumerate((1, 2, 4, 8, 16)):
        heads[0xD4 + i] = _Head(0, length, extra=1)
    for i, width in enumerate((2, 4)):
        heads[0xDC + i] = _Head(width, per=1)
        heads[0xDE + i] = _Head(width, per=2)
    return heads


_HEADS = _heads()
# First bytes of a str or an int. Other keys are refused in any case, but only after the dict has been built,
# which takes quadratic time if their hashes are equal.
_KEYS = frozenset(
    (*range(0x80), *range(0xA0, 0xC0), *range(0xCC, 0xD4), *range(0xD9, 0xDC), *range(0xE0, 256))
)


def check_heads(message: bytes | memoryview, start: int, limits: Limits) -> None:
    """Check the number and nesting of a message's values without creating any.

    start: offset of the outermost value.

    Raises:
        WireError: if the message exceeds a limit or is truncated.
    """
    position, end = start, len(message)
    left = items = 1  # values still to come in the innermost container, and values altogether
    outer: list[tuple[int, bool]] = []  # `left` and `is_dict` of the containers around it
    is_dict = False  # whether the innermost container is a dict
    while True:
        while not left:
            if not outer:
                return
            left, is_dict = outer.pop()
        left -= 1
        if position >= end:
            raise _cut_short(end)
        if is_dict and left % 2 and message[position] not in _KEYS:
            raise WireError(f"byte {position} starts a key that is neither a str nor a 64-bit int")
        head = _HEADS[message[position]]
        if head is None:
            raise WireError(
                f"byte {position} is {message[position]:#x}, which cannot start a value"
            )
        position += 1
        width, number, per, extra = head
        if width:
            if position + width > end:
                raise _cut_short(end)
            number = int.from_bytes(message[position : position + width], "big")
            position += width
        if not per:
            position += number + extra
            if position > end:
                raise _cut_short(end)
            continue
        if len(outer) >= limits.depth:
            raise WireError(
                f"values are nested more deeply than Limits.depth allows, which is {limits.depth}"
            )
        if number:
            items += number * per
            # Each value takes at least one byte, so this exposes forged lengths before memory is taken.
            if number * per > end - position:
                raise _cut_short(end)
            if items > limits.items:
                raise WireError(f"more than {limits.items} values (Limits.items)")
            outer.append((left, is_dict))
            left, is_dict = number * per, per == 2


def _cut_short(end: int) -> WireError:
    return WireError(f"the message ends early, after {end} bytes")
