"""Requests by the standard library: a client with more features takes a tenth of a second to be made."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from waiting import LONG_S


@dataclass
class Answer:
    """The reply of a server."""

    status: int
    content_type: str
    body: bytes

    def json(self) -> Any:
        """Return its values."""
        return json.loads(self.body)


def get(url: str) -> Answer:
    """Return the answer to a GET."""
    return _answer(url, "GET", None, {}, LONG_S)


def post(
    url: str,
    values: Any = None,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    password: str | None = None,
    timeout_s: float = LONG_S,
) -> Answer:
    """Return the answer to a POST of JSON values, or of a body as it is; without a Content-Type."""
    sent = dict(headers or {})
    if password is not None:
        sent["Authorization"] = f"Basic {base64.b64encode(f':{password}'.encode()).decode()}"
    data = json.dumps(values).encode() if body is None else body
    return _answer(url, "POST", data, sent, timeout_s)


def _answer(
    url: str, method: str, body: bytes | None, headers: dict[str, str], timeout_s: float
) -> Answer:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, headers)
        reply = connection.getresponse()
        return Answer(reply.status, reply.headers.get("Content-Type", ""), reply.read())
    finally:
        connection.close()
