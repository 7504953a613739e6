"""The head that a transport puts before each record, by which it knows its own again."""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">4s16sQ")
_MAGIC = b"plm\x01"
SESSION_BYTES = 16
# The number of a record without messages, by which a transport sees where its own begin.
OPENING = 0


def frame(session: bytes, number: int, content: bytes) -> bytes:
    """Return a record's bytes for the log.

    Args:
        session: 16 bytes that no other transport has.
        number: of the record in this session.
    """
    return _HEAD.pack(_MAGIC, session, number) + content


def unframe(value: bytes | None) -> tuple[bytes, int, bytes] | None:
    """Return session, number and content of what was in the log, None if no transport wrote it."""
    if value is None or len(value) < _HEAD.size:
        return None
    magic, session, number = _HEAD.unpack_from(value)
    return None if magic != _MAGIC else (session, number, value[_HEAD.size :])
