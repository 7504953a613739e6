"""The header that a transport prepends to each record, to recognize its own when they come back."""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">4s16sQ")
_MAGIC = b"plm\x01"
SESSION_BYTES = 16
# Number of the marker record, at which a transport begins to read.
OPENING = 0


def frame(session: bytes, number: int, content: bytes) -> bytes:
    """Prepend the header to a record.

    Args:
        session: 16 bytes, unique to the transport.
        number: number of the record in this session.
    """
    return _HEAD.pack(_MAGIC, session, number) + content


def unframe(value: bytes | None) -> tuple[bytes, int, bytes] | None:
    """Split a log value into session, number and content. Returns None if no transport wrote it."""
    if value is None or len(value) < _HEAD.size:
        return None
    magic, session, number = _HEAD.unpack_from(value)
    return None if magic != _MAGIC else (session, number, value[_HEAD.size :])
