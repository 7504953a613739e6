"""The header that a transport prepends to each record, to recognize its own when they come back."""

from __future__ import annotations

import hmac
from hashlib import blake2b
from struct import Struct

_HEAD = Struct(">4s16sQ")
_MAGIC = b"plm\x01"
SESSION_BYTES = 16
# A signed value: this, a digest with the run's key of topic and value, and the value.
_SIGNED = b"plm\x02"
_DIGEST_BYTES = 16
_SIGNED_BYTES = len(_SIGNED) + _DIGEST_BYTES
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


def sign(value: bytes, topic: str, key: bytes) -> bytes:
    """Prepend a digest that only processes with the key can compute. It is valid in this topic only."""
    return _SIGNED + _digest(value, topic, key) + value


def signed_value(content: bytes | None, topic: str, key: bytes) -> bytes | None:
    """Return the value that was signed with the key for this topic. None if it was not."""
    value = unsigned(content)
    if content is None or value is None or len(value) == len(content):
        return None
    digest = content[len(_SIGNED) : _SIGNED_BYTES]
    return value if hmac.compare_digest(digest, _digest(value, topic, key)) else None


def unsigned(content: bytes | None) -> bytes | None:
    """Return the value without its digest, unchecked. A value that is not signed is returned as it is."""
    if content is None or not content.startswith(_SIGNED):
        return content
    return content[_SIGNED_BYTES:]


def _digest(value: bytes, topic: str, key: bytes) -> bytes:
    name = topic.encode()
    head = len(name).to_bytes(2, "big") + name
    return blake2b(head + value, digest_size=_DIGEST_BYTES, key=key).digest()
