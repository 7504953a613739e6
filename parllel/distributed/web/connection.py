"""One connection: deadlines for what a client sends and reads, and limits on how it sends it.

    client       sends, reads, or does neither
    transport    data_received, connection_lost: the phase changes here and when a reply is complete
    WebServer    check(now), ten times a second, which ends what is too late

    phases   header    since the connection, or the first byte of a request    header_s
             body      since the end of the headers                           body_s
             working   until the reply is complete                            the handler's own
             idle      until the next request                                 idle_s

uvicorn has a deadline for idle connections alone, and h11 none at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from parllel.distributed.web.app import App
from parllel.distributed.web.joined_writes import JoinedWrites
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError
from parllel.distributed.wire.json_text import json_bytes

_LOGGER = logging.getLogger("parllel.distributed.web.connection")
# uvicorn warns of each malformed request, which any client can cause; mistakes of ours are errors.
_LOGGER.setLevel(logging.ERROR)
_FREE_CHUNKS = 1024
_LEAST_CHUNK = 64  # bytes of a part of a body on average, once there are more than those
_MOST_HEADERS = 16_384  # bytes


class _ParsedRequests(h11.Connection):
    """The parser, which refuses bodies in very small parts: each costs as much time as a large one."""

    _parts = 0
    _nbytes = 0
    _much = False

    def receive_data(self, data: bytes) -> None:
        # h11 limits headers that are not complete; these may come in one piece.
        self._much = len(data) > _MOST_HEADERS
        super().receive_data(data)

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._parts += 1
            self._nbytes += len(event.data)
            if self._parts > _FREE_CHUNKS and self._nbytes < self._parts * _LEAST_CHUNK:
                raise h11.RemoteProtocolError("a body in parts that are too small")
        elif isinstance(event, h11.Request):
            self._parts = self._nbytes = 0
            if self._much and _nbytes_of(event) > _MOST_HEADERS:
                raise h11.RemoteProtocolError("headers that are too long")
        return event


class Connection(H11Protocol):
    """A connection of uvicorn's that keeps to the settings' limits.

    Args:
        settings: of the server.
        arguments: those of uvicorn's protocols.
    """

    def __init__(self, settings: ServerSettings, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.settings = settings
        self.logger = _LOGGER
        # Its lines have queries in them; ours are made by the application.
        self.access_log = False
        self.conn = _ParsedRequests(h11.SERVER, _MOST_HEADERS)
        self.phase = "header"
        self._deadline: float | None = None
        self._write_deadline: float | None = None
        self._request: object = None  # that of the phase

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse with 503 if there are too many connections and none is idle."""
        self._joined = JoinedWrites(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._joined))
        self._enter("header")
        if len(self.connections) > self.settings.max_connections:
            idle = [one for one in _ours(self.connections) if one.phase == "idle"]
            if idle:
                min(idle, key=lambda one: one._deadline or 0.0).transport.abort()
            else:
                self._refuse(503, "too many connections; try again later")

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._update_phase()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Reply to a whole request even if the client sends no more; end anything else."""
        if self.phase == "working" and self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
            return True
        return None

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._joined.flush()
        super().on_response_complete()
        self._update_phase()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "expected an HTTP/1.1 request")

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the transport over to a WebSocket, or refuse as any other request is."""
        # The library is for those who have WebSockets.
        from parllel.distributed.web.socket_connection import SocketConnection

        app = cast("App", self.config.app)
        try:
            if event.method != b"GET" or event.http_version != b"1.1" or _has_body(event):
                raise WebError(400, "expected the handshake of a WebSocket")
            handler = app.admit_socket(self.scope)
            socket = SocketConnection(
                self.settings, self.connections, self.client[0] if self.client else ""
            )
            socket.accept(self.transport, event.target, self.headers)
        except WebError as error:
            self._refuse(error.status, str(error), error.headers)
            return
        self.connections.discard(self)
        app.serve_socket(socket, socket.serve(handler), self.scope)

    def _update_phase(self) -> None:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            phase = "body"
        elif state is not h11.IDLE:
            phase = "working"
        else:
            phase = "header" if self.conn.trailing_data[0] else "idle"
            # The connection's first bytes are still to come.
            if self.cycle is None:
                phase = "header"
        if phase != self.phase or self._request is not self.cycle:
            self._enter(phase)

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self._request = self.cycle
        limits = {
            "header": self.settings.header_s,
            "body": self.settings.body_s,
            "idle": self.settings.idle_s,
        }
        limit_s = limits.get(phase)
        self._deadline = None if limit_s is None else self.loop.time() + limit_s

    def check(self, now: float) -> None:
        """End the connection if it is too late; called ten times a second.

        now: of the event loop's clock.
        """
        if self.transport.get_write_buffer_size() == 0:
            self._write_deadline = None
        elif self._write_deadline is None:
            self._write_deadline = now + self.settings.write_s
        elif now > self._write_deadline:
            self.transport.abort()
            return
        if self._deadline is None or now < self._deadline or self.transport.is_closing():
            return
        if self.phase == "idle":
            self.transport.close()
        else:
            self._refuse(408, f"the {self.phase} of the request took too long")

    def _refuse(
        self, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Reply without the application, unless a reply has begun, and end the connection."""
        cycle, head = self.cycle, False
        if cycle is not None and not cycle.response_complete:
            head = cycle.scope["method"] == "HEAD"
            # The application, which may be waiting for more of the body, must not reply too.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json_bytes({"error": message})
            lines = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                *(f"{name.decode()}: {value.decode('latin-1')}" for name, value in headers),
                "connection: close\r\n\r\n",
            )
            self.transport.write("\r\n".join(lines).encode("latin-1"))
            if not head:
                self.transport.write(body)
        self.transport.close()


def _nbytes_of(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


def _has_body(request: h11.Request) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers)


def check_connections(connections: Iterable[Any], now: float) -> None:
    """End those that are too late, WebSockets too; called ten times a second.

    now: of the event loop's clock.
    """
    # A copy, as those that end leave the set.
    for connection in list(connections):
        connection.check(now)


def _ours(connections: Iterable[object]) -> list[Connection]:
    return [one for one in connections if isinstance(one, Connection)]
