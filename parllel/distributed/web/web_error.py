"""The reply to a request that is refused, as an exception."""

from __future__ import annotations

from parllel.errors import ParllelError


class WebError(ParllelError):
    """Raised by a handler: the reply has this status and `{"error": message}`.

    Attributes:
        status: 400 to 599.
        headers: to add to the reply, as bytes.
    """

    def __init__(
        self, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
