"""A request as a handler sees it, and its reply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from parllel.distributed.web.web_error import WebError
from parllel.distributed.wire.json_text import json_bytes, parse_json
from parllel.distributed.wire.limits import Limits

JSON = "application/json"
_MAX_FIELDS = 100  # of a query


@dataclass(frozen=True)
class Response:
    """A status, bytes and their media type.

    Attributes:
        headers: to add, lower-case names and values as bytes.
        parts: of the body, each sent when it comes; if they end before the body does, so does the connection.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    parts: AsyncIterator[bytes] | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Response:
        """Return JSON values as a reply.

        Raises:
            WireError: if JSON does not have a value.
        """
        return cls(json_bytes(value), status)


@dataclass
class Request:
    """A request; a handler gets it once it has passed all checks.

    Attributes:
        method: "GET" for HEAD too.
        path: decoded, without the query.
        client: address of the other end of the connection, without its port.
        limits: of JSON in the body.
        headers: by lower-case name; of several, the last one.
        raw_path: as it was sent, without the query.
        content_type: of the body, lower-case and without parameters; "application/json" if none was sent.
        body: b"" without one.
    """

    method: str
    path: str
    client: str
    limits: Limits
    query_string: bytes
    headers: dict[bytes, bytes]
    raw_path: bytes
    content_type: str = JSON
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None; of several, the last one."""
        value = self.headers.get(name.lower().encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    @cached_property
    def query(self) -> dict[str, str]:
        """The fields of the query.

        Raises:
            WebError: 400, if there are more than 100, one occurs twice, or one is not UTF-8.
        """
        try:
            pairs = parse_qsl(
                self.query_string.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_FIELDS,
            )
        except ValueError as error:
            raise WebError(400, f"expected at most {_MAX_FIELDS} query fields in UTF-8") from error
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise WebError(400, "a query field occurs twice")
        return fields

    def json(self) -> Any:
        """Return the values of the body.

        Raises:
            WireError: which becomes a 400, if it is not JSON or exceeds a limit.
        """
        return parse_json(self.body, self.limits)
