"""A server of a test: it answers each request with what a function returns, byte for byte."""

from __future__ import annotations

import contextlib
import socket
import threading


def reply(body, *, status="200 OK", kind="application/json", head=""):
    """Return a reply of HTTP."""
    body = body if isinstance(body, bytes) else body.encode()
    start = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    )
    return start.encode() + body


class Answering:
    """Listen at `url`; `answer(request)` returns what is sent, as bytes or as parts of them.

    None closes the connection. `requests` holds heads and bodies, `n_connections` how many were made.
    """

    def __init__(self, answer, host="127.0.0.1"):
        self.answer, self.requests, self.n_connections = answer, [], 0
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://{host}:{self.port}/"
        self._open = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.n_connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as file:
            while True:
                lines = []
                while (line := file.readline()) not in (b"", b"\r\n"):
                    lines.append(line.decode())
                if not lines:
                    return
                head = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
                body = file.read(int(head.get("content-length", 0)))
                self.requests.append((lines[0].strip(), head, body))
                answer = self.answer(body)
                if answer is None:
                    return
                for part in [answer] if isinstance(answer, bytes) else answer:
                    connection.sendall(part)

    def close_connections(self):
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.close_connections()
        for thread in self._threads:
            thread.join(30)
