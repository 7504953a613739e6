"""What it is that answers at an address, asked without the client.

The client tries again until its deadline, whatever comes; an answer of something else than a broker says at
once that waiting is of no use.
"""

from __future__ import annotations

import socket
import struct

from parllel.distributed.messaging.kafka.client_settings import ClientSettings

_API_VERSIONS, _CORRELATION = 18, 0x70617231
# Servers of other protocols answer at the end of a line, and would wait for one.
_CLIENT = b"parllel\r\n\r\n"
# Of an answer: its length, and the number of the request.
_HEAD_BYTES = 8
_LONGEST_ANSWER = 1 << 20


def wrong_answer(settings: ClientSettings, timeout_s: float) -> str | None:
    """Return what answers in place of a broker, None if a broker answers, or nothing does.

    Only plain connections are tried: others begin with a handshake.
    """
    protocol = str(settings.config.get("security.protocol", "plaintext")).lower()
    if protocol != "plaintext":
        return None
    for address in settings.addresses():
        answer = _ask(address, timeout_s)
        if len(answer) >= _HEAD_BYTES and not _is_broker(answer):
            return f"{address[0]}:{address[1]} is no Kafka broker: it answers {answer[:16]!r}"
    return None


def _ask(address: tuple[str, int], timeout_s: float) -> bytes:
    """Return the first bytes of the answer to a request that begins a connection, as far as they come."""
    head = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, len(_CLIENT)) + _CLIENT
    answer = b""
    try:
        with socket.create_connection(address, timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(head)) + head)
            while len(answer) < _HEAD_BYTES and (more := connection.recv(64)):
                answer += more
    except OSError:  # a time-out too
        pass
    return answer


def _is_broker(answer: bytes) -> bool:
    length, correlation = struct.unpack_from(">ii", answer)
    return 4 <= length <= _LONGEST_ANSWER and bool(correlation == _CORRELATION)
