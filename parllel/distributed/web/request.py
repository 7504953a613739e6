"""Requests that handlers receive and responses that they return."""

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


# Frozen: it is made in a handler's thread and written by the loop's.
@dataclass(frozen=True)
class Response:
    """Reply to a request: status, body and media type.

    Attributes:
        headers: headers added to the reply, with lower-case names and values as bytes.
        parts: parts sent one by one instead of `body`. The length of `body` is announced; if the
            parts end earlier, the connection is closed.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    # Iterated by the loop's thread, so it must not block.
    parts: AsyncIterator[bytes] | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Response:
        """Build a response from JSON values.

        Raises:
            WireError: if a value has no JSON form.
        """
        return cls(json_bytes(value), status)


@dataclass
class Request:
    """Request that has passed all checks.

    Attributes:
        method: the verb. For HEAD requests it is "GET" as well.
        path: the decoded path, without the query.
        client: address of the other end of the connection, without its port.
        limits: limits on JSON in the body.
        headers: headers keyed by lower-case name. If a name is repeated, the last one counts.
        raw_path: the path as sent, without the query.
        content_type: media type of the body in lower case, without parameters. "application/json"
            if none was sent.
        body: the body, b"" if the request has none.
    """

    method: str
    path: str
    client: str
    limits: Limits
    query_string: bytes
    headers: dict[bytes, bytes]
    raw_path: bytes
    # Set by `App` before the request is handed to a handler. From then on the loop only reads the
    # request, for the log and for a refusal.
    content_type: str = JSON
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None. The last one if it is repeated."""
        value = self.headers.get(name.lower().encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    @cached_property
    def query(self) -> dict[str, str]:
        """Fields of the query string.

        Raises:
            WebError: 400 for more than 100 fields, a repeated field, or one that is not UTF-8.
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
        # A proxy or a check could have used the other value.
        if len(fields) < len(pairs):
            raise WebError(400, "a query field occurs twice")
        return fields

    def json(self) -> Any:
        """Parse the body as JSON.

        Raises:
            WireError: for invalid JSON, or beyond a limit. The server answers it with a 400.
        """
        # Parsed by the handler: on the loop, a large body would delay every connection.
        return parse_json(self.body, self.limits)
