"""Speak to a server byte by byte, as clients do that mean it badly, or are broken."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit


class RawConnection:
    """A connection of a server, as a context.

    client: the address it comes from, for another client than the rest; loopback has many.
    """

    def __init__(self, server, timeout_s=20.0, client=None):
        address = urlsplit(server.url)
        at = (address.hostname, address.port)
        source = None if client is None else (client, 0)
        self.socket = socket.create_connection(at, timeout_s, source_address=source)
        self._buffer = b""

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reply(self):
        """Return the status and the values of the next reply; None if the connection ends first."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._receive():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = int(next(line for line in lines if line.startswith(b"content-length:"))[15:])
        while len(self._buffer) < length:
            if not self._receive():
                return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return int(lines[0].split()[1]), json.loads(body)

    def is_closed(self):
        """Wait until the server closes the connection; fail if it sends more, or does not in time."""
        return not self._receive() and not self._buffer

    def _receive(self):
        try:
            received = self.socket.recv(65536)
        except ConnectionError:
            received = b""
        self._buffer += received
        return received

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()


def request(body=b"", *headers, method=b"POST", path=b"/", host=b"localhost"):
    """Return the bytes of a request, with a Content-Length unless the headers say otherwise."""
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: " + host, *headers]
    if not any(b"length" in line.lower() or b"encoding" in line.lower() for line in headers):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])
