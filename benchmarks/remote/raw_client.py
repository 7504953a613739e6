"""Many connections in one thread that send requests back to back, at minimal CPU cost."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from urllib.parse import urlsplit

WAIT_S = 120.0


class RawClient:
    """Connections to one server, each with a request that it repeats.

    Args:
        url: of the server.
        bodies: of the requests, JSON; a connection for each.
        headers: more of each request.
    """

    def __init__(self, url: str, bodies: Sequence[bytes], headers: Sequence[str] = ()) -> None:
        address = (str(urlsplit(url).hostname), int(urlsplit(url).port or 80))
        self._selector = selectors.DefaultSelector()
        self._requests: list[bytes] = []
        self._sockets: list[socket.socket] = []
        for number, body in enumerate(bodies):
            lines = (
                "POST / HTTP/1.1",
                f"Host: {address[0]}:{address[1]}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                *headers,
            )
            self._requests.append("\r\n".join((*lines, "", "")).encode() + body)
            connection = socket.create_connection(address, WAIT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(connection)
            self._selector.register(connection, selectors.EVENT_READ, number)

    def once(self) -> list[bytes]:
        """Send all requests and return the bodies of the replies.

        Raises:
            RuntimeError: if one is not answered with 200.
        """
        replies = []
        for connection, request in zip(self._sockets, self._requests, strict=True):
            connection.sendall(request)
        for connection in self._sockets:
            received = b""
            while not _complete(received):
                part = connection.recv(65536)
                if not part:
                    raise RuntimeError(f"the server closed a connection after {received[:300]!r}")
                received += part
            replies.append(_body(received))
        return replies

    def run(self, seconds: float) -> list[float]:
        """Keep one request of each connection on its way; return the seconds that each took.

        Raises:
            RuntimeError: if one is not answered with 200.
        """
        began = [0.0] * len(self._sockets)
        took: list[float] = []
        end = time.perf_counter() + seconds
        waiting = len(self._sockets)
        parts = [b""] * waiting
        for number, connection in enumerate(self._sockets):
            began[number] = time.perf_counter()
            connection.sendall(self._requests[number])
        while waiting:
            ready = self._selector.select(WAIT_S)
            if not ready:
                raise RuntimeError(f"no reply within {WAIT_S:g} s")
            for key, _ in ready:
                connection, number = self._sockets[key.data], key.data
                part = connection.recv(65536)
                parts[number] += part
                if part and not _complete(parts[number]):
                    continue
                _body(parts[number])
                parts[number] = b""
                now = time.perf_counter()
                took.append(now - began[number])
                if now < end:
                    began[number] = now
                    connection.sendall(self._requests[number])
                else:
                    waiting -= 1
        return took

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._selector.close()
        for connection in self._sockets:
            connection.close()


def _complete(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return False
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return len(body) >= int(length)


def _body(received: bytes) -> bytes:
    if not received.startswith(b"HTTP/1.1 200 ") or not _complete(received):
        raise RuntimeError(f"expected a whole reply with status 200, got {received[:300]!r}")
    return received.partition(b"\r\n\r\n")[2]
