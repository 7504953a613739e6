"""Server of a board: REST, WebSocket and the page, for clients that have its token."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from parllel.distributed.operators.board.board import Board
from parllel.distributed.operators.dashboard.board_routes import BoardRoutes
from parllel.distributed.operators.dashboard.viewers import Viewers
from parllel.distributed.web.app import Route, build_app
from parllel.distributed.web.request import Request, Response
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.token_file import read_token
from parllel.distributed.web.web_server import WebServer
from parllel.distributed.web.web_socket import SocketRoute
from parllel.types import Closeable

_PAGE = Path(__file__).parent / "page"
_INDEX = "index.html"


class Dashboard(Closeable):
    """Server of a board's page and its REST routes. Binds its address on construction.

    `start()` serves in a thread; `run()` serves in the calling thread until a signal. The caller
    owns the board and closes it after the dashboard.

    Args:
        board: the board to show.
        base: folder below which experiments are listed. Default: the parent of the board's folder.
        trusted: whether to execute run scripts from any folder, like the option --trust.
        settings: settings of the server. Default: 127.0.0.1 and a free port. If they contain no
            token, the token in the board's folder is used, because connected clients can start
            programs.

    Attributes:
        token: token that clients must send.

    Raises:
        OSError: if the address cannot be bound, or the token cannot be read.
        ValueError: if other users can read the token.
    """

    def __init__(
        self,
        board: Board,
        *,
        base: str | os.PathLike[str] | None = None,
        trusted: bool = False,
        settings: ServerSettings | None = None,
    ) -> None:
        settings = settings or ServerSettings()
        token = settings.token or token_of(board.folder)
        settings = replace(settings, token=token, cookie=True)
        self.token = token
        folder = str(Path(board.folder).parent if base is None else base)
        routes = BoardRoutes(board, folder, trusted=trusted)
        self._server = WebServer(
            build_app(
                [*file_routes(page_files()), *routes.routes()],
                settings,
                sockets=[SocketRoute("/api/ws", Viewers(board).serve)],
            )
        )

    @property
    def url(self) -> str:
        """Base URL, without a trailing slash."""
        return self._server.url

    @property
    def login_url(self) -> str:
        """URL that logs a browser in; it contains the token."""
        return self.url + self._login

    @property
    def _login(self) -> str:
        return f"/?token={quote(self.token, safe='')}"

    def announce(self) -> None:
        """Print the login URL, and a warning if other machines can connect."""
        self._server.announce(self._login)

    def start(self) -> Dashboard:
        """Serve in a thread. Returns when requests are accepted.

        Raises:
            WrongStateError: if it was started or closed before.
        """
        self._server.start()
        return self

    def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Serve in this thread until SIGTERM, SIGINT or `close()`, then shut down in order.

        started: function called when requests are accepted.
        """
        self._server.run(started)

    def close(self) -> None:
        """Shut the server down in order. Idempotent. The board continues."""
        self._server.close()

    def __enter__(self) -> Dashboard:
        return self.start()

    def __repr__(self) -> str:
        return f"Dashboard({self.url})"


def page_files() -> dict[str, bytes]:
    """Return a dict from URL path to page file."""
    return {
        "/" if path.name == _INDEX else f"/{path.name}": path.read_bytes()
        for path in sorted(_PAGE.iterdir())
        if path.is_file() and not path.name.startswith((".", "_"))
    }


_TOKEN_FILE = "token"


def token_of(folder: str | os.PathLike[str]) -> str:
    """Return the token in a board's folder.

    If there is none, a token is created that only this user can read.

    Raises:
        OSError: if the file cannot be read or written.
        ValueError: if other users can read the file, or it does not contain a token.
    """
    path = Path(folder) / _TOKEN_FILE
    try:
        # O_EXCL and the mode in one call: it is never readable by others, and an existing one is kept.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    token = read_token(path)
    assert token is not None
    return token


_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
}
# Only this server's scripts and styles, none inline; the page cannot be framed by another site.
_POLICY = (
    "default-src 'self'; img-src 'self' blob:; media-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def file_routes(files: Mapping[str, bytes]) -> list[Route]:
    """Return a route for each file. Request paths never reach the disk, so nothing else can be fetched.

    files: file contents keyed by path, such as "/page.js". The extension determines the media type.

    Raises:
        ValueError: for an unknown extension.
    """
    return [_route(path, body) for path, body in files.items()]


def _route(path: str, body: bytes) -> Route:
    ending = path.rpartition(".")[2] if "." in path else "html"
    if ending not in _TYPES:
        raise ValueError(f"{path}: expected a file that ends in {', '.join(_TYPES)}")
    reply = Response(body, 200, _TYPES[ending], _HEADERS)

    async def show(request: Request) -> Response:
        return reply

    return Route(path, {"GET": show})
