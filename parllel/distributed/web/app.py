"""Request handling: a fixed sequence of checks, then a handler::

    token      in the query of a page's address: exchanged for a cookie
    headers    Guard: Host, rate, Origin, token
    path       /health and /ready are answered here, in any state
    ending     everything else gets a 503
    verb, media type, size    before any of the body is read
    body       up to the size limit
    handler    coroutine functions run on the event loop, other functions in the pool of threads

Starlette would replace a dict look-up: its requests cost 1.6 times as much, its import takes 70 ms, and its
thread pool has no bound on waiting requests.
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
# Explicit, since the root logger's default, WARNING, would drop its lines. Whether there are any is
# decided by `access_log`.
_ACCESS_LOGGER.setLevel(logging.INFO)
_LONGEST = 200  # characters of a path in the access log
_SHOWN = 80  # characters of a type that a reply repeats
# Answered in any state and without a token: the probes of an orchestrator have none.
_OPEN_PATHS = ("/health", "/ready")
_CLOSE = (b"connection", b"close")


@dataclass(frozen=True)
class Route:
    """Handlers of one path.

    Attributes:
        path: the path as sent by clients, decoded.
        handlers: handlers keyed by verb. A handler returns JSON values or a `Response`, and raises
            WebError to refuse the request. Coroutine functions must not block. The handler of GET
            also answers HEAD.
        content_types: media types accepted for a body. Other types are refused with 415.
    """

    path: str
    handlers: Mapping[str, Handler]
    content_types: tuple[str, ...] = (JSON,)

    @cached_property
    def allow(self) -> bytes:
        """The verbs as a value of the `Allow` header."""
        return ", ".join(sorted(self.handlers)).encode()

    @cached_property
    def on_loop(self) -> frozenset[str]:
        """Verbs whose handlers are coroutine functions."""
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
    """Build an application of guarded routes, to be served by a `WebServer`.

    ready: initial answer of `/ready`. If False, set `App.ready` later.
    sockets: routes of WebSockets.

    Raises:
        ValueError: if two routes share a path, or one uses `/health` or `/ready`.
        ImportError: if there are sockets and websockets is not installed.
    """
    paths = [
        *_OPEN_PATHS,
        *(route.path for route in routes),
        *(route.path for route in sockets),
    ]
    duplicates = {path for path in paths if paths.count(path) > 1}
    if duplicates:
        raise ValueError(f"expected one route for each path, got several for {sorted(duplicates)}")
    # Now rather than at the first handshake, which imports the library
    # (`HttpConnection._open_socket`).
    if sockets and find_spec("websockets") is None:
        raise ImportError(f"WebSockets need websockets: {install_command('operators')}")
    return App(
        {route.path: route for route in routes},
        settings or ServerSettings(),
        ready,
        {route.path: route.handler for route in sockets},
    )


class App:
    """Application built by `build_app`.

    Attributes:
        settings: settings of the server.
        ready: whether `/ready` answers 200.
        ending: whether new requests are refused because the server is shutting down.
        running: number of requests being answered.
        sockets: open WebSockets and the tasks of their handlers.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        settings: ServerSettings,
        ready: bool,
        socket_handlers: Mapping[str, SocketHandler],
    ) -> None:
        self.settings = settings
        # Flags that the loop's thread reads at each request; any thread may set `ready`, and only
        # `WebServer` sets `ending`. Everything else here belongs to the loop's thread, except the
        # pool, which `close` stops from the thread of the owner.
        self.ready = ready
        self.ending = False
        self.running = 0
        self.sockets: dict[WebSocket, asyncio.Task[None]] = {}
        self._routes = routes
        self._socket_handlers = socket_handlers
        self._guard = Guard(settings)
        self._pool = HandlerPool(settings.handler_threads, settings.waiting_requests)

    async def answer(self, request: Request, read_body: ReadBody) -> Response | None:
        """Answer one request. Never raises. Called in the loop's thread.

        read_body: coroutine function that returns the body, or None if the client disconnected.

        Returns: None if the client disconnected.
        """
        begun, method = time.perf_counter(), request.method
        # No lock: the counter is written here and read by `WebServer._finish_running`, both in the loop's
        # thread.
        self.running += 1
        try:
            # While this waits for a handler's thread, the client may have left: `running` still
            # counts the request, since the handler goes on.
            reply = await self._answer(request, read_body)
        finally:
            self.running -= 1
        if self.settings.access_log:
            _log_access(request, method, None if reply is None else reply.status, begun)
        return reply

    async def _answer(self, request: Request, read_body: ReadBody) -> Response | None:
        try:
            return await self._checked(request, read_body)
        # Of `Request.json`, called by a handler: the client's mistake.
        except WireError as error:
            refused = WebError(400, str(error))
        except WebError as error:
            refused = error
        except asyncio.CancelledError:
            # Cancelled by `HttpConnection.shutdown` once running requests have had their time.
            refused = WebError(503, "the server shut down before the reply was ready")
        except BaseException:
            # The traceback goes to the log only: to a client it would reveal paths, versions and values.
            _LOGGER.exception("%s failed", request.method)
            refused = WebError(500, "internal server error; see the server's log")
        return refusal(refused, request.headers, self.settings)

    async def _checked(self, request: Request, read_body: ReadBody) -> Response | None:
        # First, since a browser that follows the printed link has no cookie yet and would fail the token
        # check.
        redirect = self._login(request) if request.method == "GET" else None
        if redirect is not None:
            return redirect
        self._guard.check(
            request.headers, request.client, needs_token=request.path not in _OPEN_PATHS
        )
        # Handlers only know GET. The connection has seen the verb itself and drops the body of the
        # reply.
        if request.method == "HEAD":
            request.method = "GET"
        if request.path in _OPEN_PATHS:
            return self._state(request)
        # The connection is closed as well, so that a retry reaches the server that replaces this one.
        if self.ending:
            raise WebError(503, "the server is shutting down", ((b"retry-after", b"1"), _CLOSE))
        route = self._routes.get(request.path)
        if request.path in self._socket_handlers:
            upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
            raise WebError(426, "expected a WebSocket handshake at this path", upgrade)
        if route is None:
            raise WebError(404, "nothing is served at this path")
        handler = route.handlers.get(request.method)
        if handler is None:
            expected = f"expected {route.allow.decode()} at this path"
            raise WebError(405, expected, ((b"allow", route.allow),))
        # Twice: by the announced length before anything is read, and by what arrives, as chunks announce
        # none.
        self._check_length(int(request.headers.get(b"content-length", b"0")))
        request.content_type = _media_type(request.headers, route.content_types)
        body = await read_body()
        # The client has left: no handler runs for a reply that nobody reads.
        if body is None:
            return None
        self._check_length(len(body))
        request.body = body
        # A coroutine function shares the loop with all connections and deadlines, so only these run
        # here; other functions may block. Refused by a full pool, the request has been read to its
        # end, so the connection can be used again.
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
        # None for a wrong token: the request then fails the token check like any other, with its 401.
        return login(token, request.headers, request.query_string)

    def _state(self, request: Request) -> Response:
        if request.method != "GET":
            raise WebError(405, "expected GET at this path", ((b"allow", b"GET"),))
        if request.path == "/health":
            return Response.of({"status": "alive"})
        if self.ready and not self.ending:
            return Response.of({"status": "ready"})
        # 503 while ending, so that a load balancer stops sending requests before the socket closes.
        return Response.of({"status": "ending" if self.ending else "not ready"}, 503)

    # ------------------------------------------------------------------ WebSockets

    @property
    def has_sockets(self) -> bool:
        """Whether any route serves WebSockets."""
        return bool(self._socket_handlers)

    def admit_socket(self, request: Request) -> SocketHandler:
        """Return the handler for a WebSocket handshake. Called in the loop's thread.

        Raises:
            WebError: if the WebSocket is refused.
        """
        # Browsers apply no same-origin policy to WebSockets: the Guard's check of Origin is the only one.
        self._guard.check(request.headers, request.client, needs_token=True)
        if self.ending:
            raise WebError(503, "the server is shutting down", ((b"retry-after", b"1"),))
        handler = self._socket_handlers.get(request.path)
        if handler is None:
            raise WebError(404, "no WebSocket is served at this path")
        # Counts handlers, not connections: one whose client has left may still be cleaning up.
        if len(self.sockets) >= self.settings.max_sockets:
            raise WebError(503, "too many WebSockets; try again later", ((b"retry-after", b"1"),))
        return handler

    def serve_socket(
        self, socket: WebSocket, serving: Coroutine[Any, Any, None], request: Request
    ) -> None:
        """Start the handler of an accepted WebSocket. Called in the loop's thread."""
        if self.settings.access_log:
            _log_access(request, request.method, 101, time.perf_counter())
        task = asyncio.get_running_loop().create_task(serving)
        self.sockets[socket] = task
        # Not at the end of `serve`, which is never entered if the task is cancelled before its
        # first step.
        task.add_done_callback(lambda _: self.sockets.pop(socket))

    def close_sockets(self) -> None:
        """Send all WebSockets a close with code 1001. Called in the loop's thread."""
        for socket in list(self.sockets):
            socket.close(1001, "the server is shutting down")

    def close(self, timeout_s: float) -> bool:
        """Stop the handlers' threads. Idempotent.

        Returns: False if a handler did not return in time.
        """
        # The loop has usually ended. If it did not stop in time, its next call would start threads
        # again; these are daemons and end with the process.
        return self._pool.close(timeout_s)


def _handle(handler: Handler, request: Request) -> Response:
    # In the pool's thread, replies included: encoding a large one on the loop would delay every connection.
    return _reply_of(handler(request))


def _reply_of(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    try:
        return Response.of(value)
    except WireError as error:
        # A bug of the handler, not of the client: a WireError would become a 400.
        raise TypeError(f"a handler's reply is not JSON: {error}") from error


def _media_type(headers: dict[bytes, bytes], allowed: tuple[str, ...]) -> str:
    """Return the media type of a body; JSON by default.

    Raises:
        WebError: 415 for a type that is not allowed, a compressed body, or a charset other than UTF-8.
    """
    # A few compressed bytes may unpack to any length, so that the size limit would mean nothing.
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        raise WebError(415, "expected an uncompressed body")
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
        # Escaped and cut, since any client can send anything. The usual cause: curl --data sends a form.
        expected = " or ".join(allowed)
        raise WebError(415, f"Content-Type: expected {expected}, got {kind[:_SHOWN]!a}")
    return kind


def _log_access(request: Request, method: str, status: int | None, begun: float) -> None:
    """Log one line per request, without query and headers, which hold secrets.

    status: None if the client disconnected.
    begun: start of the request by `time.perf_counter`.
    """
    path = request.raw_path.decode("latin-1")
    # A request for a proxy has a full URL here, which may contain a password.
    shown = path[:_LONGEST] if path.startswith("/") else "-"
    _ACCESS_LOGGER.info(
        "%s %s %s %s %.1f ms",
        request.client or "-",
        method[:_LONGEST],
        shown,
        "gone" if status is None else status,
        (time.perf_counter() - begun) * 1e3,
    )
