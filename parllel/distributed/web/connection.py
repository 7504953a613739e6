"""One connection: deadlines for what a client sends and reads, and limits on how it sends it.

    client       sends, reads, or does neither
    transport    data_received, connection_lost: the phase changes here and when a reply is complete
    task         one for each request: App.answer, which waits for the body in `_read_body`
    WebServer    check(now), ten times a second, which ends what is too late

    phases   header    since the connection, or the first byte of a request    header_s
             body      since the end of the headers                           body_s
             working   until the reply is complete                            the handler's own
             idle      until the next request                                 idle_s

On h11 and asyncio alone, as no server has settings for all of these: uvicorn has a limit of idle times and of
connections, hypercorn one of the time between two reads, and neither ends a client that does not read.
All of this is in the loop's thread, so that nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h11

from parllel.distributed.web.address import network_of
from parllel.distributed.web.app import App
from parllel.distributed.web.request import Request, Response
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError

if TYPE_CHECKING:
    from parllel.distributed.web.socket_connection import SocketConnection

_LOGGER = logging.getLogger("parllel.distributed.web.connection")
_FREE_CHUNKS = 1024
_LEAST_CHUNK = 64  # bytes of a part of a body on average, once there are more than those
_MAX_HEADERS = 16_384  # bytes
_LAST_S = 1.0  # for clients to read what was written before the end
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
# Replies are data for programs: no browser should guess another type, or keep them.
_FIXED = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_CLOSE = (b"connection", b"close")
_END = h11.EndOfMessage()


class Connections:
    """The connections of a server, WebSockets too.

    Args:
        app: what answers.
        settings: of the server.
    """

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self._open: set[HttpConnection | SocketConnection] = set()

    def __iter__(self) -> Iterator[HttpConnection | SocketConnection]:
        # Of a copy, as those that end leave.
        return iter(list(self._open))

    def add(self, connection: HttpConnection | SocketConnection) -> None:
        """Count a connection from now on."""
        self._open.add(connection)

    def discard(self, connection: HttpConnection | SocketConnection) -> None:
        """Count a connection no longer."""
        self._open.discard(connection)

    def make_room(self) -> None:
        """End one connection if there are too many, of the client that has the most.

        The one that has been idle longest, or else the one that has been sending a request longest, so that
        silent connections of one client keep no other out. Those that work on a request are never ended.
        """
        if len(self._open) <= self.settings.max_connections:
            return
        networks = {one: network_of(one.client) for one in self._open}
        crowd = Counter(networks.values())
        spare = [one for one in self._open if isinstance(one, HttpConnection) and one.is_evictable]
        # There is the one that has just been opened, at least.
        last = max(spare, key=lambda one: (crowd[networks[one]], one.phase == "idle", -one.since))
        last.give_way()

    def check(self, now: float) -> None:
        """End those that are too late; called ten times a second.

        now: of the event loop's clock.
        """
        for connection in self:
            connection.check(now)

    async def close(self) -> None:
        """End all of them; requests that are still running get a 503."""
        for connection in self:
            connection.shutdown()
        limit = time.monotonic() + _LAST_S
        while self._open and time.monotonic() < limit:
            await asyncio.sleep(0.01)
        for connection in self:
            connection.abort()
        # The loop's next round tells them.
        await asyncio.sleep(0)


class HttpConnection(asyncio.Protocol):
    """A connection that keeps to the settings' limits.

    Args:
        connections: of the server, which this one is one of as long as it is open.

    Attributes:
        client: address of the other end, without its port.
        phase: see above.
        since: when the phase began, by the event loop's clock.
    """

    client = ""

    def __init__(self, connections: Connections) -> None:
        settings = connections.settings
        self.phase = "header"
        self.since = 0.0
        self._app = connections.app
        self._settings = settings
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = h11.Connection(h11.SERVER, _MAX_HEADERS)
        self._limits_s = {
            "header": settings.header_s,
            "body": settings.body_s,
            "idle": settings.idle_s,
        }
        self._write_deadline: float | None = None
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None  # that answers the request
        self._is_head = False  # whether the request's verb is HEAD
        self._body = bytearray()
        self._n_parts = self._n_bytes = 0  # of the body
        self._is_whole = False  # whether the body is
        self._news = asyncio.Event()  # of the body, or of the client's end
        self._gone = False  # whether nobody waits for the reply of the task
        self._ends = False  # whether it ends with the next reply
        self._writable = True

    # ------------------------------------------------------------------ for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, in the place of another if there are too many."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        self._enter("header")
        self._connections.add(self)
        self._connections.make_room()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        # What follows a request that said it was the last one is nothing.
        if self._transport.is_closing() or self._parser.their_state is h11.MUST_CLOSE:
            return
        if self.phase == "idle":
            self._enter("header")
        self._parser.receive_data(data)
        self._parse()

    def eof_received(self) -> bool:
        """Reply to a whole request even if the client sends no more; end anything else."""
        self._ends = True
        return self._task is not None and self._is_whole

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the task that nobody waits for its reply."""
        self._connections.discard(self)
        self._give_up()

    def pause_writing(self) -> None:
        """Begin no other request: the client does not read as fast as it asks."""
        self._writable = False

    def resume_writing(self) -> None:
        """Go on to the next request."""
        self._writable = True
        self._next()

    # ------------------------------------------------------------------ requests

    def _parse(self) -> None:
        try:
            while self._take(self._parser.next_event()):
                pass
        except h11.RemoteProtocolError:
            self._refuse(WebError(400, "expected an HTTP/1.1 request"))
        except WebError as error:
            self._refuse(error)

    def _take(self, event: Any) -> bool:
        """Return whether there may be more events."""
        if isinstance(event, h11.Request):
            return self._begin(event)
        if isinstance(event, h11.Data):
            self._take_part(event.data)
            return True
        if isinstance(event, h11.EndOfMessage):
            self._is_whole = True
            self._news.set()
            if self._task is None:
                self._next()
                return False
            self._enter("working")
            return self._parser.their_state is not h11.MUST_CLOSE
        if event is h11.PAUSED:
            # The next request is there already, and waits until this one is answered.
            self._transport.pause_reading()
        return False

    def _begin(self, head: h11.Request) -> bool:
        self._is_head = head.method == b"HEAD"
        _check_head(head)
        raw_path, _, query = head.target.partition(b"?")
        headers = dict(head.headers)
        request = Request(
            head.method.decode("ascii"),
            unquote(raw_path.decode("ascii")),
            self.client,
            self._settings.limits,
            query,
            headers,
            raw_path,
        )
        if self._app.has_sockets and _asks_for_socket(headers):
            self._open_socket(request, head)
            return False
        self._body.clear()
        self._n_parts = self._n_bytes = 0
        self._is_whole = False
        self._enter("body")
        self._task = self._loop.create_task(self._answer(request))
        return True

    def _take_part(self, data: bytes) -> None:
        self._n_parts += 1
        self._n_bytes += len(data)
        # Each costs as much time as a large one.
        if self._n_parts > _FREE_CHUNKS and self._n_bytes < self._n_parts * _LEAST_CHUNK:
            raise h11.RemoteProtocolError("a body in parts that are too small")
        # Or it has been refused, and the rest is thrown away.
        if self._task is not None:
            self._body += data
            self._news.set()

    async def _read_body(self) -> bytes | None:
        """Return the body, or so much of it as is too much; None if the client has gone."""
        if self._parser.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason=_REASONS[100]))
        most = self._settings.max_body_bytes
        while not (self._is_whole or self._gone or len(self._body) > most):
            self._news.clear()
            await self._news.wait()
        body = bytes(self._body)
        self._body.clear()
        return None if self._gone else body

    async def _answer(self, request: Request) -> None:
        try:
            reply = await self._app.answer(request, self._read_body)
            if reply is None or self._gone:
                return
            if reply.parts is None:
                self._reply(reply)
            else:
                await self._reply_in_parts(reply, reply.parts)
        except Exception:
            # Such as a header of a handler's that is none.
            _LOGGER.exception("a reply to %s could not be sent", request.method)
            self._transport.abort()

    def _open_socket(self, request: Request, head: h11.Request) -> None:
        """Hand the transport over to a WebSocket, or refuse as any other request is."""
        # The library is for those who have WebSockets.
        from parllel.distributed.web.socket_connection import SocketConnection

        if request.method != "GET" or head.http_version != b"1.1" or _has_body(request.headers):
            raise WebError(400, "expected the handshake of a WebSocket")
        handler = self._app.admit_socket(request)
        socket = SocketConnection(self._settings, self.client, self._connections.discard)
        socket.accept(self._transport, head.target, head.headers)
        self._connections.discard(self)
        self._connections.add(socket)
        self._app.serve_socket(socket, socket.serve(handler), request)

    # ------------------------------------------------------------------ replies

    def _head(self, reply: Response) -> h11.Response:
        return h11.Response(
            status_code=reply.status,
            headers=[
                (b"date", _date(int(time.time()))),
                (b"content-type", reply.content_type.encode("latin-1")),
                (b"content-length", b"%d" % len(reply.body)),
                *_FIXED,
                *reply.headers,
            ],
            reason=_REASONS.get(reply.status, b""),
        )

    def _reply(self, reply: Response) -> None:
        """Write a reply, in one packet if it is small."""
        self._send(self._head(reply), h11.Data(data=b"" if self._is_head else reply.body), _END)
        self._finish()

    async def _reply_in_parts(self, reply: Response, parts: AsyncIterator[bytes]) -> None:
        self._send(self._head(reply))
        n_left = 0 if self._is_head else len(reply.body)
        async for part in parts:
            if n_left == 0 or self._gone:
                break
            n_left -= len(part)
            self._send(h11.Data(data=part))
        if n_left:
            self._transport.close()
        else:
            self._send(_END)
            self._finish()

    def _send(self, *events: h11.Event) -> None:
        self._transport.write(b"".join(self._parser.send(event) or b"" for event in events))

    def _finish(self) -> None:
        """Go on to the next request, or end."""
        self._task = None
        if self._ends or self._parser.our_state is h11.MUST_CLOSE:
            self._transport.close()
        else:
            self._next()

    def _next(self) -> None:
        """Go on to the next request, if this one is over; what is written has to be read first."""
        is_over = self._parser.our_state is self._parser.their_state is h11.DONE
        if not is_over or self._transport.is_closing():
            return
        if self.phase != "idle":
            self._enter("idle")
        if self._writable:
            self._parser.start_next_cycle()
            self._is_head = False
            if self._parser.trailing_data[0]:
                self._enter("header")
            self._transport.resume_reading()
            self._parse()

    def _refuse(self, error: WebError) -> None:
        """Reply without the application, unless a reply has begun, and end the connection."""
        self._give_up()
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = Response.of({"error": str(error)}, error.status)
            self._reply(Response(reply.body, error.status, headers=(*error.headers, _CLOSE)))
        self._transport.close()

    def _give_up(self) -> None:
        # The application, which may be waiting for more of the body, must not reply any more.
        self._gone = True
        self._news.set()

    # ------------------------------------------------------------------ for the server

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.since = self._loop.time()

    def check(self, now: float) -> None:
        """End the connection if it is too late; called ten times a second.

        now: of the event loop's clock.
        """
        if self._transport.get_write_buffer_size() == 0:
            self._write_deadline = None
        elif self._write_deadline is None:
            self._write_deadline = now + self._settings.write_s
        elif now > self._write_deadline:
            self._transport.abort()
            return
        limit_s = self._limits_s.get(self.phase)
        if limit_s is None or now < self.since + limit_s or self._transport.is_closing():
            return
        if self.phase == "idle":
            self._transport.close()
        else:
            self._refuse(WebError(408, f"the {self.phase} of the request took too long"))

    @property
    def is_evictable(self) -> bool:
        """Whether it may be ended for another connection."""
        return self.phase != "working" and not self._transport.is_closing()

    def give_way(self) -> None:
        """End it for another connection."""
        if self.phase == "idle":
            self._transport.abort()
        else:
            self._refuse(WebError(503, "too many connections; try again later"))

    def shutdown(self) -> None:
        """End it, as the server ends: a request that is still running is told so."""
        self._ends = True
        if self._task is None:
            self._transport.close()
        else:
            self._task.cancel()

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def _check_head(head: h11.Request) -> None:
    # h11 limits headers that are not complete; these may come in one piece.
    headers = head.headers
    if len(head.target) + sum(len(name) + len(value) for name, value in headers) > _MAX_HEADERS:
        raise h11.RemoteProtocolError("headers that are too long")
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names:
        # Of two servers in a row, each could go by another one of them, and take the rest of the body for
        # another request (request smuggling). HTTP/1.0 has no chunks.
        if b"content-length" in names:
            raise WebError(400, "expected Content-Length or Transfer-Encoding, got both")
        if head.http_version < b"1.1":
            raise h11.RemoteProtocolError("chunks in HTTP/1.0")


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"content-length" in headers or b"transfer-encoding" in headers


def _asks_for_socket(headers: dict[bytes, bytes]) -> bool:
    if headers.get(b"upgrade", b"").lower() != b"websocket":
        return False
    connection = headers.get(b"connection", b"").lower()
    return b"upgrade" in [token.strip() for token in connection.split(b",")]
