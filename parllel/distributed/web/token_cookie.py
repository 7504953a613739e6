"""Login for browsers: a page opened with `?token=...` gets the token as a cookie.

browser   GET /?token=T              the link that the server printed
server    303 to /, Set-Cookie       hidden from scripts, not sent with requests from other sites
browser   GET /, REST, WebSocket     with the cookie
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from parllel.distributed.web.address import parse_host
from parllel.distributed.web.request import Response

_MAX_FIELDS = 10  # in a query with a token


def cookie_of(headers: dict[bytes, bytes]) -> bytes:
    """Return the token from a request's cookies, or b"".

    headers: keyed by lower-case name. Check the Host header before the call.
    """
    name = _name(headers).encode()
    for part in headers.get(b"cookie", b"").split(b";"):
        key, _, value = part.strip().partition(b"=")
        if key == name:
            return unquote_to_bytes(value)
    return b""


def login(token: str, headers: dict[bytes, bytes], query: bytes) -> Response | None:
    """Return the reply that sets the cookie, or None if the query does not contain the token.

    headers: keyed by lower-case name. Check the Host header before the call.
    """
    if b"token=" not in query:
        return None
    try:
        fields = parse_qsl(query.decode("ascii"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    given = next((value for key, value in fields if key == "token"), "")
    # Constant time, like the Guard's comparison: an early exit would reveal a prefix.
    if not hmac.compare_digest(given.encode(), token.encode()):
        return None
    cookie = f"{_name(headers)}={quote(token, safe='')}; Path=/; HttpOnly; SameSite=Strict"
    # A redirect takes the token out of the address bar. Always to `/`: the request's own path could lead to
    # another server (`//name/`).
    added = ((b"location", b"/"), (b"set-cookie", cookie.encode()))
    return Response(b"", 303, "text/plain", added)


def _name(headers: dict[bytes, bytes]) -> str:
    # Named after the port that the browser uses, since all ports of a host share cookies and two servers
    # would overwrite each other's.
    host = parse_host(headers[b"host"].decode("latin-1"))
    return f"parllel_{80 if host is None or host.port is None else host.port}"
