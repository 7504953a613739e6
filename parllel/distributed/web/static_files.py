"""A page's files, read once, as routes."""

from __future__ import annotations

from collections.abc import Mapping

from parllel.distributed.web.app import Route
from parllel.distributed.web.call import Call, Reply

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
    reply = Reply(body, 200, _TYPES[ending], _HEADERS)

    async def show(call: Call) -> Reply:
        return reply

    return Route(path, {"GET": show})
