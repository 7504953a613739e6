"""Take the body of a request, no more of it than is allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from parllel.distributed.web.call import JSON
from parllel.distributed.web.web_error import WebError

_SHOWN = 80  # characters of a type that a reply repeats


class ClientGoneError(Exception):
    """The client has closed the connection; there is nothing to reply to."""


def check_length(headers: dict[bytes, bytes], limit: int) -> None:
    """Pass if the headers announce a body that is allowed.

    Raises:
        WebError: 400 or 413.
    """
    length = headers.get(b"content-length")
    if length is None:
        return
    # Of two servers in a row, each could go by another one of them (request smuggling).
    if b"transfer-encoding" in headers:
        raise WebError(400, "expected Content-Length or Transfer-Encoding, got both")
    if int(length) > limit:
        raise _too_large(limit)


def media_type(headers: dict[bytes, bytes], allowed: tuple[str, ...]) -> str:
    """Return the media type of a body, JSON if none is given.

    Raises:
        WebError: 415, if it is not allowed, is compressed, or is text in another encoding than UTF-8.
    """
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        raise WebError(415, "expected a body that is not compressed")
    given = headers.get(b"content-type")
    if given is None or given == b"application/json":
        kind = JSON
    else:
        kind, *parameters = given.decode("latin-1").lower().split(";")
        kind = kind.strip()
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "charset" and value.strip(' "') not in ("utf-8", "utf8"):
                raise WebError(415, "expected a body in UTF-8")
    if kind not in allowed:
        # As printable text: it comes from anyone. curl sends a form unless it is told otherwise.
        expected = " or ".join(allowed)
        raise WebError(415, f"Content-Type: expected {expected}, got {kind[:_SHOWN]!a}")
    return kind


async def read_body(receive: Callable[[], Awaitable[Any]], limit: int) -> bytes:
    """Return the body, however it is sent.

    Raises:
        WebError: 413, as soon as it is longer than the limit.
        ClientGoneError: if the client closes the connection before its end.
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts = bytearray()
    while message["type"] == "http.request":
        parts += message.get("body", b"")
        if len(parts) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(parts)
        message = await receive()
    raise ClientGoneError


def _too_large(limit: int) -> WebError:
    return WebError(413, f"expected a body of at most {limit:,} bytes (--max-body-bytes)")
