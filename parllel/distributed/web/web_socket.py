"""WebSocket interface for handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from parllel.errors import ParllelError


class SocketClosedError(ParllelError):
    """The WebSocket has been closed by either side.

    Attributes:
        code: close code of RFC 6455, section 7.4.
        reason: text given by the side that closed it.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the WebSocket has been closed: {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class WebSocket(Protocol):
    """Accepted WebSocket. Use it in the event loop's thread only.

    Attributes:
        client: address of the other end of the connection, without its port.
    """

    client: str

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            SocketClosedError: if the WebSocket is closed and no message is left.
        """

    async def send(self, message: str | bytes) -> None:
        """Send a message once the client has read most of the earlier ones.

        Raises:
            SocketClosedError: if the WebSocket is closed, even during the wait.
        """

    async def confirm(self) -> None:
        """Wait until the client has read everything sent before, as confirmed by its answer to a ping.

        `send` only waits for room in the buffers, which may hold data that a slow client takes
        minutes to read. Another task must call `receive` in the meantime. Otherwise reading pauses
        while messages wait, and the answer to the ping is not read.

        Raises:
            SocketClosedError: if the WebSocket is closed, even during the wait.
        """

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Start closing the WebSocket, after pending messages are sent. Idempotent."""

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Iterate over messages until the WebSocket is closed."""


SocketHandler = Callable[[WebSocket], Awaitable[None]]


@dataclass(frozen=True)
class SocketRoute:
    """Handler of WebSockets at one path.

    Attributes:
        path: the path as sent by clients, decoded.
        handler: coroutine function, run on the event loop. The WebSocket is closed when it returns; it is
            cancelled when the client disconnects.
    """

    path: str
    handler: SocketHandler
