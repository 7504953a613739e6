"""Answer requests: the checks in their order, then a handler.

headers    the Guard: Host, rate, Origin, token
token      in the query of a page's address, it becomes a cookie
path       /health and /ready are answered here, whatever else is going on
ending     everything else gets a 503
verb, media type, size    before a byte of the body is taken
body       as much as is allowed, and no more
handler    a coroutine function on the event loop, any other function in the pool of threads

Not on Starlette, which would replace a look-up in a dict: its requests cost 1.6 times as much, its import
70 ms, and its pool of threads refuses none.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from parllel.distributed.web.guard import Guard
from parllel.distributed.web.handler_pool import HandlerPool
from parllel.distributed.web.refusal import refusal
from parllel.distributed.web.request import JSON, Request, Response
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.token_cookie import login
from parllel.distributed.web.web_error import WebError
from parllel.distributed.web.web_socket import SocketHandler, SocketRoute, WebSocket
from parllel.distributed.wire.wire_error import WireError
from parllel.errors import install_command

Handler = Callable[[Request], Any]
ReadBody = Callable[[], Awaitable[bytes | None]]
_LOGGER = logging.getLogger("parllel.distributed.web")
_ACCESS_LOGGER = logging.getLogger("parllel.distributed.web.access")
_ACCESS_LOGGER.setLevel(logging.INFO)
_LONGEST = 200  # characters of a path in the access log
_SHOWN = 80  # characters of a type that a reply repeats
_OPEN_PATHS = ("/health", "/ready")
_CLOSE = (b"connection", b"close")


@dataclass(frozen=True)
class Route:
    """What answers at a path.

    Attributes:
        path: as clients send it, after decoding.
        handlers: by verb; one that is a coroutine function must not block. A handler returns JSON values or a
            `Response`, and raises a WebError to refuse. HEAD is answered by that of GET.
        content_types: media types that a body may have; others are refused with 415.
    """

    path: str
    handlers: Mapping[str, Handler]
    content_types: tuple[str, ...] = (JSON,)

    @cached_property
    def allow(self) -> bytes:
        """The verbs, as the header `Allow` has them."""
        return ", ".join(sorted(self.handlers)).encode()

    @cached_property
    def on_loop(self) -> frozenset[str]:
        """The verbs whose handlers are coroutine functions."""
        return frozenset(
            verb for verb, handler in self.handlers.items() if inspect.iscoroutinefunction(handler)
        )


def build_app(
    routes: Sequence[Route],
    settings: ServerSettings | None = None,
    *,
    ready: bool = True,
    sockets: Sequence[SocketRoute] = (),
) -> App:
    """Return an application that answers at some paths, behind all guards; a `WebServer` serves it.

    ready: whether `/ready` says so from the beginning; set `App.ready` later otherwise.
    sockets: what serves WebSockets.

    Raises:
        ValueError: if two routes have the same path, or one has that of a guard.
        ImportError: if there are sockets, and websockets is not installed.
    """
    paths = [*_OPEN_PATHS, *(one.path for one in routes), *(one.path for one in sockets)]
    twice = {path for path in paths if paths.count(path) > 1}
    if twice:
        raise ValueError(f"expected one route for each path, got several for {sorted(twice)}")
    if sockets and find_spec("websockets") is None:
        raise ImportError(f"WebSockets need websockets: {install_command('operators')}")
    return App(
        {route.path: route for route in routes},
        settings or ServerSettings(),
        ready,
        {route.path: route.handler for route in sockets},
    )


class App:
    """The application of `build_app`.

    Attributes:
        settings: of the server.
        ready: whether `/ready` says 200.
        ending: whether requests are refused because the server ends.
        running: requests that are being answered.
        sockets: WebSockets that are being served.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        settings: ServerSettings,
        ready: bool,
        socket_handlers: Mapping[str, SocketHandler],
    ) -> None:
        self.settings = settings
        self.ready = ready
        self.ending = False
        self.running = 0
        self.sockets: dict[WebSocket, asyncio.Task[None]] = {}
        self._routes = routes
        self._socket_handlers = socket_handlers
        self._guard = Guard(settings)
        self._pool = HandlerPool(settings.handler_threads, settings.waiting_requests)

    async def answer(self, request: Request, read_body: ReadBody) -> Response | None:
        """Answer one request; never raise. Called in the loop's thread.

        read_body: waits for the body; returns None if the client has gone.

        Returns: None if the client has gone.
        """
        begun, method = time.perf_counter(), request.method
        # Without a lock: all of this, and `WebServer` looking at it, is in the loop's thread.
        self.running += 1
        try:
            reply = await self._answer(request, read_body)
        finally:
            self.running -= 1
        if self.settings.access_log:
            _log_access(request, method, None if reply is None else reply.status, begun)
        return reply

    async def _answer(self, request: Request, read_body: ReadBody) -> Response | None:
        try:
            return await self._checked(request, read_body)
        except WireError as error:
            refused = WebError(400, str(error))
        except WebError as error:
            refused = error
        except asyncio.CancelledError:
            refused = WebError(503, "the server has ended before the reply was made")
        except BaseException:
            # With its traceback here, and none for the client, who could learn from it.
            _LOGGER.exception("%s failed", request.method)
            refused = WebError(500, "the server made a mistake; its log says which")
        return refusal(refused, request.headers, self.settings)

    async def _checked(self, request: Request, read_body: ReadBody) -> Response | None:
        entered = self._login(request) if request.method == "GET" else None
        if entered is not None:
            return entered
        self._guard.check(
            request.headers, request.client, needs_token=request.path not in _OPEN_PATHS
        )
        if request.method == "HEAD":
            request.method = "GET"
        if request.path in _OPEN_PATHS:
            return self._state(request)
        # Closed with it: the next request of this client belongs to the server that comes after this one.
        if self.ending:
            raise WebError(503, "the server is ending", ((b"retry-after", b"1"), _CLOSE))
        route = self._routes.get(request.path)
        if request.path in self._socket_handlers:
            upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
            raise WebError(426, "expected the handshake of a WebSocket at this path", upgrade)
        if route is None:
            raise WebError(404, "nothing is served at this path")
        handler = route.handlers.get(request.method)
        if handler is None:
            expected = f"expected {route.allow.decode()} at this path"
            raise WebError(405, expected, ((b"allow", route.allow),))
        # As announced, and as sent.
        self._check_length(int(request.headers.get(b"content-length", b"0")))
        request.content_type = _media_type(request.headers, route.content_types)
        body = await read_body()
        if body is None:
            return None
        self._check_length(len(body))
        request.body = body
        if request.method in route.on_loop:
            return _reply_of(await handler(request))
        reply: Response = await self._pool.submit(_handle, handler, request)
        return reply

    def _check_length(self, n_bytes: int) -> None:
        most = self.settings.max_body_bytes
        if n_bytes > most:
            raise WebError(413, f"expected a body of at most {most:,} bytes (--max-body-bytes)")

    def _login(self, request: Request) -> Response | None:
        token = self.settings.token
        if not (self.settings.cookie and token is not None and b"token=" in request.query_string):
            return None
        self._guard.check(request.headers, request.client, needs_token=False)
        return login(token, request.headers, request.query_string)

    def _state(self, request: Request) -> Response:
        if request.method != "GET":
            raise WebError(405, "expected GET at this path", ((b"allow", b"GET"),))
        if request.path == "/health":
            return Response.of({"status": "alive"})
        if self.ready and not self.ending:
            return Response.of({"status": "ready"})
        return Response.of({"status": "ending" if self.ending else "not ready"}, 503)

    # ------------------------------------------------------------------ WebSockets

    @property
    def has_sockets(self) -> bool:
        """Whether there is a path at which WebSockets are served."""
        return bool(self._socket_handlers)

    def admit_socket(self, request: Request) -> SocketHandler:
        """Return what serves a WebSocket that asks for a path; called in the loop's thread.

        Raises:
            WebError: if it may not be accepted.
        """
        self._guard.check(request.headers, request.client, needs_token=True)
        if self.ending:
            raise WebError(503, "the server is ending", ((b"retry-after", b"1"),))
        handler = self._socket_handlers.get(request.path)
        if handler is None:
            raise WebError(404, "no WebSocket is served at this path")
        if len(self.sockets) >= self.settings.max_sockets:
            raise WebError(503, "too many WebSockets; try again later", ((b"retry-after", b"1"),))
        return handler

    def serve_socket(
        self, socket: WebSocket, serving: Coroutine[Any, Any, None], request: Request
    ) -> None:
        """Run what serves an accepted WebSocket; called in the loop's thread."""
        if self.settings.access_log:
            _log_access(request, request.method, 101, time.perf_counter())
        task = asyncio.get_running_loop().create_task(serving)
        self.sockets[socket] = task
        task.add_done_callback(lambda _: self.sockets.pop(socket))

    def close_sockets(self) -> None:
        """Begin to close all WebSockets with 1001; called in the loop's thread."""
        for socket in list(self.sockets):
            socket.close(1001, "the server ends")

    def close(self, timeout_s: float) -> bool:
        """End the threads of handlers; idempotent.

        Returns: False if a handler did not return in time.
        """
        return self._pool.close(timeout_s)


def _handle(handler: Handler, request: Request) -> Response:
    # In the thread, so that large bodies are parsed and written there and not on the loop.
    return _reply_of(handler(request))


def _reply_of(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    try:
        return Response.of(value)
    except WireError as error:
        # The client's request was not wrong: not a WireError, which becomes a 400.
        raise TypeError(f"a handler's reply is not JSON: {error}") from error


def _media_type(headers: dict[bytes, bytes], allowed: tuple[str, ...]) -> str:
    """Return the media type of a body, JSON if none is given.

    Raises:
        WebError: 415, if it is not allowed, is compressed, or is text in another encoding than UTF-8.
    """
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        raise WebError(415, "expected a body that is not compressed")
    given = headers.get(b"content-type")
    if given is None or given == b"application/json":
        kind = JSON
    else:
        kind, *parameters = given.decode("latin-1").lower().split(";")
        kind = kind.strip()
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "charset" and value.strip(' "') not in ("utf-8", "utf8"):
                raise WebError(415, "expected a body in UTF-8")
    if kind not in allowed:
        # As printable text: it comes from anyone. curl sends a form unless it is told otherwise.
        expected = " or ".join(allowed)
        raise WebError(415, f"Content-Type: expected {expected}, got {kind[:_SHOWN]!a}")
    return kind


def _log_access(request: Request, method: str, status: int | None, begun: float) -> None:
    """Log one line for each request, without queries and headers: those hold secrets.

    status: None if the client has gone.
    begun: of `time.perf_counter`.
    """
    path = request.raw_path.decode("latin-1")
    # One that names a server may hold a password.
    shown = path[:_LONGEST] if path.startswith("/") else "-"
    _ACCESS_LOGGER.info(
        "%s %s %s %s %.1f ms",
        request.client or "-",
        method[:_LONGEST],
        shown,
        "gone" if status is None else status,
        (time.perf_counter() - begun) * 1e3,
    )
