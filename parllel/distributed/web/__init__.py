"""A guarded web server: who may connect, how much a request may ask for, and how the server ends::

    socket      address     loopback, or a token is required
    connection  Connections at most so many; deadlines for headers, bodies, idle and slow readers
    request     Guard       Host, Origin, token (a browser's as a cookie), requests per second and address
                App         path, verb, media type, size; the handler, in a bounded pool of threads
    WebSocket   WebSocket   after the same checks; limits of size and number, pings, slow readers
    process     WebServer   in a thread, or in the foreground until SIGTERM or SIGINT

A handler of a `Route` sees a `Request` and returns JSON values or a `Response`, one of a `SocketRoute` sees a
`WebSocket`; nothing here knows what it is for.

Names are imported when they are first asked for: a client needs none of the libraries of a server.

Raises:
    ImportError: by a name that needs what the extra `remote` installs, if that is missing.
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
