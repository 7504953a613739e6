"""A token as a cookie, for browsers: a page that is opened with `?token=...` gets it.

browser   GET /?token=T              a link, as the server printed it
server    303 to /, Set-Cookie       hidden from scripts, and not sent along with requests of other sites
browser   GET /, REST, WebSocket     with the cookie
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from parllel.distributed.web.address import parse_host
from parllel.distributed.web.request import Response

_MAX_FIELDS = 10  # of a query that holds a token


def cookie_of(headers: dict[bytes, bytes]) -> bytes:
    """Return the token in the cookies of a request, b"" if there is none.

    headers: lower-case names; its Host has been checked.
    """
    name = _name(headers).encode()
    for part in headers.get(b"cookie", b"").split(b";"):
        key, _, value = part.strip().partition(b"=")
        if key == name:
            return unquote_to_bytes(value)
    return b""


def login(token: str, headers: dict[bytes, bytes], query: bytes) -> Response | None:
    """Return the reply that sets the cookie, or None if the query does not have the token.

    headers: lower-case names; its Host has been checked.
    """
    if b"token=" not in query:
        return None
    try:
        fields = parse_qsl(query.decode("ascii"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    given = next((value for key, value in fields if key == "token"), "")
    if not hmac.compare_digest(given.encode(), token.encode()):
        return None
    cookie = f"{_name(headers)}={quote(token, safe='')}; Path=/; HttpOnly; SameSite=Strict"
    # To one fixed path: the request's own could lead to another server (`//name/`).
    added = ((b"location", b"/"), (b"set-cookie", cookie.encode()))
    return Response(b"", 303, "text/plain", added)


def _name(headers: dict[bytes, bytes]) -> str:
    # With the port by which the browser calls it: all ports of a host share their cookies.
    host = parse_host(headers[b"host"].decode("latin-1"))
    return f"parllel_{80 if host is None or host.port is None else host.port}"
