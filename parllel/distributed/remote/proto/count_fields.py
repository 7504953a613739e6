"""Count the fields of a message before it is parsed: each takes 40 bytes of memory, and two on the way."""

from __future__ import annotations

from parllel.distributed.wire.wire_error import WireError

# The messages inside a message, by the number of their field; those of a map are messages as well.
_PARTS: dict[str, dict[int, str]] = {
    "KaggleEvaluationRequest": {2: "Payload", 3: "Entry"},
    "KaggleEvaluationResponse": {1: "Payload"},
    "Payload": {6: "PayloadList", 7: "PayloadList", 8: "PayloadMap"},
    "PayloadList": {1: "Payload"},
    "PayloadMap": {1: "Entry"},
    "Entry": {2: "Payload"},
}
_FIXED = {1: 8, 5: 4}  # bytes, by wire type
_VARINT, _BYTES = 0, 2


def check_fields(message: bytes, name: str, most: int) -> None:
    """Raise WireError if a message has more than `most` fields, those of the messages inside it included.

    What is damaged is left to the parser: counting stops there.
    """
    left = most
    inside = [(0, len(message), name)]
    while inside:
        at, end, name = inside.pop()
        parts = _PARTS[name]
        while at < end:
            left -= 1
            if left < 0:
                raise WireError(f"more than {most} fields (Limits.items)")
            key, at = _varint(message, at, end)
            kind = key & 7
            if kind == _BYTES:
                size, at = _varint(message, at, end)
                if key >> 3 in parts:
                    inside.append((at, min(at + size, end), parts[key >> 3]))
                at += size
            elif kind == _VARINT:
                _, at = _varint(message, at, end)
            elif kind in _FIXED:
                at += _FIXED[kind]
            else:  # a group, which no message here has
                at = end


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end
