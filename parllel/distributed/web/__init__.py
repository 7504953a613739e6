"""A guarded web server: who may connect, how much a request may ask for, and how the server ends::

    socket      address     loopback, or a token is required
    connection  Connection  at most so many; deadlines for headers, bodies, idle and slow readers
    request     Guard       Host, Origin, token (a browser's as a cookie), requests per second and address
                App         path, verb, media type, size; the handler, in a bounded pool of threads
    WebSocket   WebSocket   after the same checks; limits of size and number, pings, slow readers
    process     WebServer   in a thread, or in the foreground until SIGTERM or SIGINT

A handler of a `Route` sees a `Call` and returns JSON values or a `Reply`, one of a `SocketRoute` sees a
`WebSocket`; nothing here knows what it is for.

Raises:
    ImportError: if uvicorn or msgspec is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import h11 as _h11  # noqa: F401
    import msgspec as _msgspec  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("h11", "msgspec", "uvicorn"):
        raise
    raise ImportError(
        f"parllel.distributed.web needs {error.name}: {_install_command('remote')}"
    ) from error

from parllel.distributed.web.app import Handler, Route, build_app
from parllel.distributed.web.call import Call, Reply
from parllel.distributed.web.read_token import read_token
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError
from parllel.distributed.web.web_server import WebServer
from parllel.distributed.web.web_socket import SocketRoute, WebSocket

__all__ = [
    "Call",
    "Handler",
    "Reply",
    "Route",
    "ServerSettings",
    "SocketRoute",
    "WebError",
    "WebServer",
    "WebSocket",
    "build_app",
    "read_token",
]
