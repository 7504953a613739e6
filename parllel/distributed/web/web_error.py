"""Refused requests as exceptions."""

from __future__ import annotations

from parllel.errors import ParllelError


class WebError(ParllelError):
    """Refusal of a request. The reply has this status and the body `{"error": message}`.

    Attributes:
        status: HTTP status of the reply, 400 to 599.
        headers: headers added to the reply, as bytes.
    """

    def __init__(
        self, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
