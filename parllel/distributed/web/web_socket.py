"""A WebSocket as its handler sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from parllel.errors import ParllelError


class SocketClosedError(ParllelError):
    """The WebSocket has been closed, by either side.

    Attributes:
        code: of RFC 6455, section 7.4.
        reason: what the side that closed it said.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the WebSocket has been closed: {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class WebSocket(Protocol):
    """An accepted WebSocket, which belongs to the event loop's thread.

    Attributes:
        client: address of the other end of the connection, without its port.
    """

    client: str

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            SocketClosedError: if there is none, and will be none.
        """

    async def send(self, message: str | bytes) -> None:
        """Send a message, once those before it have mostly been taken by the client.

        Raises:
            SocketClosedError: if it has been closed, also while this waits.
        """

    async def confirm(self) -> None:
        """Wait until the client has taken all that was sent before, which it says by answering a ping.

        `send` alone waits for the buffers between, which may hold what a slow client takes minutes to read.
        Another task has to receive meanwhile: while messages wait, nothing is read, and so no answer.

        Raises:
            SocketClosedError: if it has been closed, also while this waits.
        """

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Begin to close it; does nothing if that has begun. What waits to be sent is sent before."""

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Iterate over messages until it is closed."""


SocketHandler = Callable[[WebSocket], Awaitable[None]]


@dataclass(frozen=True)
class SocketRoute:
    """What serves WebSockets at a path.

    Attributes:
        path: as clients send it, after decoding.
        handler: a coroutine function, on the event loop; the WebSocket is closed when it returns, and it is
            cancelled when the client has gone.
    """

    path: str
    handler: SocketHandler
