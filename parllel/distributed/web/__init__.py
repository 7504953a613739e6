"""Guarded web server: limits on connections, requests and WebSockets, and an orderly shutdown::

    socket      address     loopback only, unless there is a token
    connection  Connections limit on their number; deadlines for headers, bodies, idle clients, slow readers
    request     Guard       Host, Origin, token (a cookie for browsers), requests per second and address
                App         path, verb, media type, size; the handler, in a bounded pool of threads
    WebSocket   WebSocket   after the same checks; limits on size and number, pings, slow readers
    process     WebServer   in a thread, or in the foreground until SIGTERM or SIGINT

The handler of a `Route` receives a `Request` and returns JSON values or a `Response`; the handler of a
`SocketRoute` receives a `WebSocket`. The server does not depend on what it serves.

Names are imported on first use, so a client does not need the server's libraries.

Raises:
    ImportError: on access to a name that needs the extra `remote`, if it is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.lazy_names import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from parllel.distributed.web.app import Handler, Route, build_app
    from parllel.distributed.web.request import Request, Response
    from parllel.distributed.web.server_settings import ServerSettings
    from parllel.distributed.web.token_file import read_token
    from parllel.distributed.web.web_error import WebError
    from parllel.distributed.web.web_server import WebServer
    from parllel.distributed.web.web_socket import SocketRoute, WebSocket

__all__ = [
    "Handler",
    "Request",
    "Response",
    "Route",
    "ServerSettings",
    "SocketRoute",
    "WebError",
    "WebServer",
    "WebSocket",
    "build_app",
    "read_token",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "app": (
            "Handler",
            "Route",
            "build_app",
        ),
        "request": (
            "Request",
            "Response",
        ),
        "server_settings": ("ServerSettings",),
        "token_file": ("read_token",),
        "web_error": ("WebError",),
        "web_server": ("WebServer",),
        "web_socket": (
            "SocketRoute",
            "WebSocket",
        ),
    },
    extra="remote",
    libraries=("h11", "msgspec"),
)
