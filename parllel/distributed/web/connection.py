"""HTTP connections with a deadline for every phase and limits on what a client may send::

    client       sends, reads, or does neither
    transport    data_received, connection_lost: the phase changes here and when a reply is complete
    task         one per request: App.answer, which awaits the body in `_read_body`
    WebServer    check(now), ten times a second: closes connections past their deadline

    phase     begins with                                     limit
    header    the connection, or the first byte of a request  header_s
    body      the end of the headers                          body_s
    working   the end of the body                             none: up to the handler
    idle      the end of the reply                            idle_s

Built on h11 and asyncio because no server offers all of these limits: uvicorn limits idle time and the number
of connections, hypercorn the time between two reads, and neither drops a client that does not read.
Everything runs in the loop's thread, so nothing here needs a lock.
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
_LEAST_CHUNK = 64  # average bytes per part of a body that has more than _FREE_CHUNKS parts
_MAX_HEADERS = 16_384  # bytes
_LAST_S = 1.0  # for clients to read the last replies before their connections are aborted
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
# Replies are data for programs: browsers must neither guess another media type nor cache them.
_FIXED = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_CLOSE = (b"connection", b"close")
_END = h11.EndOfMessage()


class Connections:
    """Open connections of a server, WebSockets included.

    Args:
        app: the application that answers requests.
        settings: settings of the server.
    """

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self._open: set[HttpConnection | SocketConnection] = set()

    def __iter__(self) -> Iterator[HttpConnection | SocketConnection]:
        # Over a copy: connections that are closed during the loop remove themselves.
        return iter(list(self._open))

    def add(self, connection: HttpConnection | SocketConnection) -> None:
        """Add a connection that was opened."""
        self._open.add(connection)

    def discard(self, connection: HttpConnection | SocketConnection) -> None:
        """Remove a connection that was lost, or handed over to a WebSocket."""
        self._open.discard(connection)

    def make_room(self) -> None:
        """Evict one connection of the client that has the most, if there are too many.

        Evicts the connection that has been idle longest, or else the one that has been sending a request
        longest, so that one client's silent connections cannot lock out others. Connections whose request is
        being answered are never evicted.
        """
        if len(self._open) <= self.settings.max_connections:
            return
        networks = {each: network_of(each.client) for each in self._open}
        n_open = Counter(networks.values())
        evictable = [
            each for each in self._open if isinstance(each, HttpConnection) and each.is_evictable
        ]
        # Never empty: it contains at least the connection that has just been opened.
        evicted = max(
            evictable, key=lambda each: (n_open[networks[each]], each.phase == "idle", -each.since)
        )
        evicted.give_way()

    def check(self, now: float) -> None:
        """Close connections past their deadline. Called ten times a second.

        now: current time on the event loop's clock.
        """
        # A poll instead of timers: each request would cancel and re-arm its own several times.
        for connection in self:
            connection.check(now)

    async def close(self) -> None:
        """Close all connections. Requests in progress get a 503."""
        # Politely first (cancelled requests write their 503), then by force for clients that do not read.
        for connection in self:
            connection.shutdown()
        limit = time.monotonic() + _LAST_S
        while self._open and time.monotonic() < limit:
            await asyncio.sleep(0.01)
        for connection in self:
            connection.abort()
        # `abort` schedules connection_lost for the next round of the loop, which closes the sockets.
        await asyncio.sleep(0)


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 connection that enforces the server's limits.

    Args:
        connections: the server's open connections; contains this one while it is open.

    Attributes:
        client: address of the other end, without its port.
        phase: current phase, see the top of this module.
        since: time at which the phase began, on the event loop's clock.
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
        self._task: asyncio.Task[None] | None = None  # answers the current request
        self._is_head = False  # the request's verb is HEAD: the reply has no body
        self._body = bytearray()
        self._n_parts = self._n_bytes = 0  # of the body, dropped ones included
        self._is_whole = False  # the last byte of the body has arrived
        # Wakes `_read_body`: more of the body, or the client disconnected.
        self._news = asyncio.Event()
        self._gone = False  # nobody waits for the task's reply any more
        self._ends = False  # close the connection after the next reply
        self._writable = True  # the transport's buffer is below its high-water mark

    # ------------------------------------------------------------------ for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, evicting another if there are too many."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        self._enter("header")
        # After the phase has begun, which `make_room` reads: it may evict this very connection.
        self._connections.add(self)
        self._connections.make_room()

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client."""
        # Bytes after a request that announced `Connection: close` are ignored.
        if self._transport.is_closing() or self._parser.their_state is h11.MUST_CLOSE:
            return
        # The idle limit ends with the first byte; sending the headers slowly then runs into header_s.
        if self.phase == "idle":
            self._enter("header")
        self._parser.receive_data(data)
        self._parse()

    def eof_received(self) -> bool:
        """Handle the end of the client's data. A complete request is still answered."""
        self._ends = True
        # True keeps our side of the connection open for the reply; False makes asyncio close it.
        return self._task is not None and self._is_whole

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request in progress, because nobody waits for its reply."""
        self._connections.discard(self)
        self._give_up()

    def pause_writing(self) -> None:
        """Pause pipelined requests, because the client reads more slowly than it sends."""
        self._writable = False

    def resume_writing(self) -> None:
        """Continue with the next request."""
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
        """Handle one event of the parser. Returns whether more may follow."""
        if isinstance(event, h11.Request):
            return self._begin(event)
        if isinstance(event, h11.Data):
            self._take_part(event.data)
            return True
        if isinstance(event, h11.EndOfMessage):
            self._is_whole = True
            self._news.set()
            # Without a task the request was answered before its body ended; the body was only drained.
            if self._task is None:
                self._next()
                return False
            # From here on the time is the handler's, who alone knows how long its work takes.
            self._enter("working")
            return self._parser.their_state is not h11.MUST_CLOSE
        if event is h11.PAUSED:
            # A pipelined request. Stop reading until this one is answered, or a client could fill the memory.
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
        # The task starts before the body is complete, so that a wrong path or token is refused at once.
        self._enter("body")
        self._task = self._loop.create_task(self._answer(request))
        return True

    def _take_part(self, data: bytes) -> None:
        self._n_parts += 1
        self._n_bytes += len(data)
        # A part of one byte costs as much time as a large one: a megabyte of them would occupy the loop.
        if self._n_parts > _FREE_CHUNKS and self._n_bytes < self._n_parts * _LEAST_CHUNK:
            raise h11.RemoteProtocolError("a body in parts that are too small")
        # Without a task the request has been refused, and the rest of its body is dropped.
        if self._task is not None:
            self._body += data
            self._news.set()

    async def _read_body(self) -> bytes | None:
        """Return the body, or as much as exceeds the limit; None if the client disconnected."""
        # Sent only now, after the checks of the headers: a refused client never uploads its body.
        if self._parser.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason=_REASONS[100]))
        most = self._settings.max_body_bytes
        # Stops as soon as the limit is exceeded; App.answer then replies 413 without waiting for the rest.
        while not (self._is_whole or self._gone or len(self._body) > most):
            self._news.clear()
            await self._news.wait()
        body = bytes(self._body)
        self._body.clear()
        return None if self._gone else body

    async def _answer(self, request: Request) -> None:
        try:
            reply = await self._app.answer(request, self._read_body)
            # After `_refuse` the connection has its last reply, and the handler's comes too late.
            if reply is None or self._gone:
                return
            if reply.parts is None:
                self._reply(reply)
            else:
                await self._reply_in_parts(reply, reply.parts)
        # Not CancelledError: `shutdown` may cancel a reply in parts, of which the head has been
        # sent. `Connections.close` then aborts the connection.
        except Exception:
            # For example an invalid header of a handler. Part of the reply may be out: only a reset is
            # honest.
            _LOGGER.exception("a reply to %s could not be sent", request.method)
            self._transport.abort()

    def _open_socket(self, request: Request, head: h11.Request) -> None:
        """Hand the transport over to a WebSocket, or raise WebError like any refused request."""
        # Imported here, because only servers with WebSockets need the library.
        from parllel.distributed.web.socket_connection import SocketConnection

        if request.method != "GET" or head.http_version != b"1.1" or _has_body(request.headers):
            raise WebError(400, "expected a WebSocket handshake")
        handler = self._app.admit_socket(request)
        socket = SocketConnection(self._settings, self.client, self._connections.discard)
        # From `accept` on the transport reports to the WebSocket. Nothing awaits in between, so no byte is
        # lost.
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
        """Write head and body at once: one packet for a small reply."""
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
        # Content-Length was promised: a shorter body can only be told by closing the connection.
        if n_left:
            self._transport.close()
        else:
            self._send(_END)
            self._finish()

    def _send(self, *events: h11.Event) -> None:
        self._transport.write(b"".join(self._parser.send(event) or b"" for event in events))

    def _finish(self) -> None:
        """Continue with the next request, or close after the last one."""
        self._task = None
        if self._ends or self._parser.our_state is h11.MUST_CLOSE:
            self._transport.close()
        else:
            self._next()

    def _next(self) -> None:
        """Start the next request once this one is over and the client has read the reply.

        Called after a reply, after the end of a drained body, and when the transport is writable again;
        whichever comes last goes on.
        """
        is_over = self._parser.our_state is self._parser.their_state is h11.DONE
        if not is_over or self._transport.is_closing():
            return
        if self.phase != "idle":
            self._enter("idle")
        if self._writable:
            self._parser.start_next_cycle()
            self._is_head = False
            # A pipelined request has begun already, so that its headers are due.
            if self._parser.trailing_data[0]:
                self._enter("header")
            self._transport.resume_reading()
            self._parse()

    def _refuse(self, error: WebError) -> None:
        """Reply without the application, unless a reply has begun, and close the connection."""
        self._give_up()
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = Response.of({"error": str(error)}, error.status)
            self._reply(Response(reply.body, error.status, headers=(*error.headers, _CLOSE)))
        self._transport.close()

    def _give_up(self) -> None:
        # Wakes the task, which may be waiting for more of the body, and discards its reply.
        self._gone = True
        self._news.set()

    # ------------------------------------------------------------------ for the server

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.since = self._loop.time()

    def check(self, now: float) -> None:
        """Close the connection if a deadline has passed. Called ten times a second.

        now: current time on the event loop's clock.
        """
        # write_s runs until the buffer is empty, not per packet: a client that reads one byte now and then is
        # cut off too.
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
        """Whether the connection may be closed in favour of another."""
        return self.phase != "working" and not self._transport.is_closing()

    def give_way(self) -> None:
        """Close the connection in favour of another."""
        if self.phase == "idle":
            self._transport.abort()
        else:
            self._refuse(WebError(503, "too many connections; try again later"))

    def shutdown(self) -> None:
        """Close the connection because the server is shutting down.

        A request in progress gets a 503.
        """
        # Also for a reply that is written just now: the connection must not wait for another
        # request.
        self._ends = True
        if self._task is None:
            self._transport.close()
        else:
            # App.answer turns the cancellation into a 503, and `_finish` closes after it.
            self._task.cancel()

    def abort(self) -> None:
        """Close the connection immediately, discarding unsent data."""
        self._transport.abort()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def _check_head(head: h11.Request) -> None:
    # h11 limits only headers that arrive in pieces; complete ones pass it at any length.
    headers = head.headers
    if len(head.target) + sum(len(name) + len(value) for name, value in headers) > _MAX_HEADERS:
        raise h11.RemoteProtocolError("headers that are too long")
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names:
        # Request smuggling: a proxy could follow one of the two headers and this server the other, and then
        # take the rest of the body for the next request. HTTP/1.0 has no chunks.
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
