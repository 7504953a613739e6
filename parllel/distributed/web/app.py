"""Answer requests: the checks in their order, then a handler.

headers    the Guard: Host, rate, Origin, token
token      in the query of a page's address, it becomes a cookie
path       /health and /ready are answered here, whatever else is going on
ending     everything else gets a 503
verb, media type, size    before a byte of the body is taken
body       as much as is allowed, and no more
handler    a coroutine function on the event loop, any other function in the pool of threads
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

from parllel.distributed.web.access_log import log_access
from parllel.distributed.web.call import JSON, Call, Reply
from parllel.distributed.web.guard import Guard
from parllel.distributed.web.handler_pool import HandlerPool
from parllel.distributed.web.read_body import ClientGoneError, check_length, media_type, read_body
from parllel.distributed.web.refusal import refusal
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.token_cookie import login
from parllel.distributed.web.web_error import WebError
from parllel.distributed.web.web_socket import SocketHandler, SocketRoute, WebSocket
from parllel.distributed.wire.wire_error import WireError
from parllel.errors import install_command

Handler = Callable[[Call], Any]
_LOGGER = logging.getLogger("parllel.distributed.web")
_OPEN_PATHS = ("/health", "/ready")
_CLOSE = (b"connection", b"close")
# Replies are data for programs: no browser should guess another type, or keep them.
_FIXED = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


@dataclass(frozen=True)
class Route:
    """What answers at a path.

    Attributes:
        path: as clients send it, after decoding.
        handlers: by verb; one that is a coroutine function must not block. A handler returns JSON values or a
            `Reply`, and raises a WebError to refuse. HEAD is answered by that of GET.
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
    """Return an ASGI application that answers at some paths, behind all guards.

    ready: whether `/ready` says so from the beginning; set `App.ready` later otherwise.
    sockets: what serves WebSockets; they are no part of ASGI here, and `WebServer` alone accepts them.

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
    """The ASGI application of `build_app`.

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

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request; never raise."""
        if scope["type"] != "http":
            raise RuntimeError(f"expected an HTTP request, got {scope['type']}")
        begun = time.perf_counter()
        # Without a lock: all of this, and `WebServer` looking at it, is in the loop's thread.
        self.running += 1
        try:
            reply = await self._answer(scope, receive)
            if self.settings.access_log:
                log_access(scope, None if reply is None else reply.status, begun)
            if reply is not None:
                await _send(reply, send)
        finally:
            self.running -= 1

    async def _answer(
        self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Any]]
    ) -> Reply | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            return await self._checked(scope, headers, receive)
        except ClientGoneError:
            return None
        except WireError as error:
            return refusal(WebError(400, str(error)), headers, self.settings)
        except WebError as error:
            return refusal(error, headers, self.settings)
        except asyncio.CancelledError:
            ended = WebError(503, "the server has ended before the reply was made")
            return refusal(ended, headers, self.settings)
        except BaseException:
            # With its traceback here, and none for the client, who could learn from it.
            _LOGGER.exception("%s failed", scope["method"])
            mistake = WebError(500, "the server made a mistake; its log says which")
            return refusal(mistake, headers, self.settings)

    async def _checked(
        self,
        scope: Mapping[str, Any],
        headers: dict[bytes, bytes],
        receive: Callable[[], Awaitable[Any]],
    ) -> Reply:
        path, method = scope["path"], scope["method"]
        client = scope["client"][0] if scope["client"] else ""
        entered = self._login(scope, headers, client) if method == "GET" else None
        if entered is not None:
            return entered
        self._guard.check(headers, client, needs_token=path not in _OPEN_PATHS)
        if method == "HEAD":
            method = "GET"
        if path in _OPEN_PATHS:
            return self._state(path, method)
        # Closed with it: the next request of this client belongs to the server that comes after this one.
        if self.ending:
            raise WebError(503, "the server is ending", ((b"retry-after", b"1"), _CLOSE))
        route = self._routes.get(path)
        if path in self._socket_handlers:
            upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
            raise WebError(426, "expected the handshake of a WebSocket at this path", upgrade)
        if route is None:
            raise WebError(404, "nothing is served at this path")
        handler = route.handlers.get(method)
        if handler is None:
            expected = f"expected {route.allow.decode()} at this path"
            raise WebError(405, expected, ((b"allow", route.allow),))
        check_length(headers, self.settings.max_body_bytes)
        content_type = media_type(headers, route.content_types)
        body = await read_body(receive, self.settings.max_body_bytes)
        call = Call(
            method,
            path,
            content_type,
            body,
            client,
            self.settings.limits,
            scope["query_string"],
            headers,
        )
        if method in route.on_loop:
            return _reply_of(await handler(call))
        reply: Reply = await self._pool.submit(_handle, handler, call)
        return reply

    def _login(
        self, scope: Mapping[str, Any], headers: dict[bytes, bytes], client: str
    ) -> Reply | None:
        token, query = self.settings.token, scope["query_string"]
        if not (self.settings.cookie and token is not None and b"token=" in query):
            return None
        self._guard.check(headers, client, needs_token=False)
        return login(token, headers, query)

    def _state(self, path: str, method: str) -> Reply:
        if method != "GET":
            raise WebError(405, "expected GET at this path", ((b"allow", b"GET"),))
        if path == "/health":
            return Reply.of({"status": "alive"})
        if self.ready and not self.ending:
            return Reply.of({"status": "ready"})
        return Reply.of({"status": "ending" if self.ending else "not ready"}, 503)

    # ------------------------------------------------------------------ WebSockets

    @property
    def has_sockets(self) -> bool:
        """Whether there is a path at which WebSockets are served."""
        return bool(self._socket_handlers)

    def admit_socket(self, scope: Mapping[str, Any]) -> SocketHandler:
        """Return what serves a WebSocket that asks for a path; called in the loop's thread.

        Raises:
            WebError: if it may not be accepted.
        """
        client = scope["client"][0] if scope["client"] else ""
        self._guard.check(dict(scope["headers"]), client, needs_token=True)
        if self.ending:
            raise WebError(503, "the server is ending", ((b"retry-after", b"1"),))
        handler = self._socket_handlers.get(scope["path"])
        if handler is None:
            raise WebError(404, "no WebSocket is served at this path")
        if len(self.sockets) >= self.settings.max_sockets:
            raise WebError(503, "too many WebSockets; try again later", ((b"retry-after", b"1"),))
        return handler

    def serve_socket(
        self, socket: WebSocket, serving: Coroutine[Any, Any, None], scope: Mapping[str, Any]
    ) -> None:
        """Run what serves an accepted WebSocket; called in the loop's thread."""
        if self.settings.access_log:
            log_access(scope, 101, time.perf_counter())
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


def _handle(handler: Handler, call: Call) -> Reply:
    # In the thread, so that large bodies are parsed and written there and not on the loop.
    return _reply_of(handler(call))


def _reply_of(value: Any) -> Reply:
    if isinstance(value, Reply):
        return value
    try:
        return Reply.of(value)
    except WireError as error:
        # The client's request was not wrong: not a WireError, which becomes a 400.
        raise TypeError(f"a handler's reply is not JSON: {error}") from error


async def _send(reply: Reply, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    headers = [
        (b"content-type", reply.content_type.encode("latin-1")),
        (b"content-length", b"%d" % len(reply.body)),
        *_FIXED,
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
