"""Replies to refused requests: a page for browsers, JSON for programs."""

from __future__ import annotations

from html import escape
from http import HTTPStatus

from parllel.distributed.web.request import JSON, Response
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError

_HTML = "text/html; charset=utf-8"
_CLOSE = (b"connection", b"close")
# Allows the page's inline style, forbids everything else and embedding in another page.
_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>parllel: {title}</title>
<style>
body {{ max-width: 38rem; margin: 12vh auto; padding: 0 1.2rem; overflow-wrap: anywhere; }}
body {{ font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.3rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
{text}
</body>
</html>
"""
_WITH_COOKIE = """<p>This page needs the server's token. Open the address that the server printed:</p>
<p><code>{origin}/?token=&hellip;</code></p>
<p>If you no longer have it: the token is in the file given as <code>--token-file</code>, or in the file
<code>token</code> of the server's folder. This browser remembers it afterwards.</p>"""
_WITH_PASSWORD = """<p>This server is for programs, which send its token as
<code>Authorization: Bearer &hellip;</code>. In a browser,
reload the page and enter the token as the password; any user name works.</p>"""


def refusal(error: WebError, headers: dict[bytes, bytes], settings: ServerSettings) -> Response:
    """Return the reply to a refused request.

    headers: headers of the request, keyed by lower-case name.
    """
    added = error.headers
    # A client refused while it waits for `100 Continue` may send its body or its next request: which of the
    # two the next bytes are cannot be told, so the connection closes.
    if b"expect" in headers and _CLOSE not in added:
        added = (*added, _CLOSE)
    # A message may repeat what a client sent, lone surrogates included, which UTF-8 cannot encode.
    message = str(error).encode("utf-8", "replace").decode()
    if _wants_page(headers.get(b"accept", b"")):
        body = _page(error.status, message, headers, settings).encode()
        return Response(body, error.status, _HTML, (*added, _POLICY))
    reply = Response.of({"error": message}, error.status)
    return Response(reply.body, error.status, JSON, added)


def _wants_page(accept: bytes) -> bool:
    """Return whether the client is a browser: browsers list HTML first, programs JSON or `*/*`."""
    first = accept.partition(b",")[0].partition(b";")[0]
    return first.strip().lower() == b"text/html"


def _page(status: int, message: str, headers: dict[bytes, bytes], settings: ServerSettings) -> str:
    if status != HTTPStatus.UNAUTHORIZED:
        title = HTTPStatus(status).phrase
        return _PAGE.format(title=escape(title), text=f"<p>{escape(message)}</p>")
    # The Guard has already checked this Host, since it checks the token last.
    origin = "http://" + headers.get(b"host", b"").decode("latin-1")
    text = _WITH_COOKIE if settings.cookie else _WITH_PASSWORD
    return _PAGE.format(title="Token needed", text=text.format(origin=escape(origin)))
