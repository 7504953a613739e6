"""The server of a board: REST, WebSocket and the page, for those who have its token."""

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
    """Server of a board's page and its REST routes; bound to its address at once.

    It answers after `start()`, in a thread, or in `run()`, until a signal. The board is the caller's, who
    closes it after the dashboard.

    Args:
        board: what is shown.
        base: folder below which experiments are listed; default that of the board's folder.
        trusted: whether scripts of runs are executed wherever they are, as --trust of commands has it.
        settings: of the server; default 127.0.0.1 and a free port. Without a token, that of the board's
            folder is used, as whoever is connected can start programs.

    Attributes:
        token: what clients send.

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
        """Where it is reached, without a slash at the end."""
        return self._server.url

    @property
    def login_url(self) -> str:
        """The address that lets a browser in; it holds the token."""
        return self.url + self._login

    @property
    def _login(self) -> str:
        return f"/?token={quote(self.token, safe='')}"

    def announce(self) -> None:
        """Print the address that lets a browser in, and a warning where other machines can connect."""
        self._server.announce(self._login)

    def start(self) -> Dashboard:
        """Serve in a thread; return when requests are accepted.

        Raises:
            WrongStateError: if it has been started or closed before.
        """
        self._server.start()
        return self

    def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Serve in this thread until SIGTERM, SIGINT or `close()`, then end in order and return.

        started: called when requests are accepted.
        """
        self._server.run(started)

    def close(self) -> None:
        """End the server in order; idempotent. The board goes on."""
        self._server.close()

    def __enter__(self) -> Dashboard:
        return self.start()

    def __repr__(self) -> str:
        return f"Dashboard({self.url})"


def page_files() -> dict[str, bytes]:
    """Return the files of the page, by the path at which each is served."""
    return {
        "/" if path.name == _INDEX else f"/{path.name}": path.read_bytes()
        for path in sorted(_PAGE.iterdir())
        if path.is_file() and not path.name.startswith((".", "_"))
    }


_TOKEN_FILE = "token"


def token_of(folder: str | os.PathLike[str]) -> str:
    """Return the token in a board's folder; make one, readable by this user alone, if there is none.

    Raises:
        OSError: if it cannot be read or written.
        ValueError: if other users can read it, or it is no token.
    """
    path = Path(folder) / _TOKEN_FILE
    try:
        # With its mode from the beginning, and only if there is none.
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
# Scripts and styles of this server alone, none within the page, and no page of another site around it.
_POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def file_routes(files: Mapping[str, bytes]) -> list[Route]:
    """Return a route for each file; nothing else can be asked for, as no path of a request reaches the disk.

    files: contents by path, such as "/page.js"; the ending says the media type.

    Raises:
        ValueError: for an ending that is not known.
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
