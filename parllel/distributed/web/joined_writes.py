"""A transport that sends what is written in one go as one packet."""

from __future__ import annotations

import asyncio
from typing import Any

_MOST_HELD = 65_536  # bytes


class JoinedWrites:
    """A transport around a transport: bytes are sent by `flush`, or when the event loop comes round.

    The head of a reply and its body are written separately, and each would be a call of the system, a packet
    and a wake-up of the client: a fifth of the time that a small request takes.

    Args:
        transport: of asyncio; whatever is not here is asked of it.
        loop: that it belongs to.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        """Hold bytes, at most 64 KiB."""
        if not data:
            return
        if not self._held:
            # For replies that come in parts, as time goes by.
            self._loop.call_soon(self.flush)
        self._held += data
        if len(self._held) > _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        if self._held:
            held, self._held = self._held, bytearray()
            self._transport.write(held)

    def write_eof(self) -> None:
        """Send what is held, and say that there is no more."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Send what is held, and close the connection."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
