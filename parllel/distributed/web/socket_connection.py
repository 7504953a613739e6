"""A connection that has become a WebSocket.

    client       frames, pongs, an end, or silence
    transport    data_received: frames are joined to messages, which wait in `_messages`; until they are
                 taken, no more is read
    handler      receive takes from `_messages`; send waits while the client does not read
    WebServer    check(now), ten times a second: pings, and ends what is too late

    deadlines    ping_s     for a sign of life after a ping
                 write_s    for the client to read what was sent
                 _CLOSE_S   for its answer to a close

On the part of websockets that does no input and output: its own connections are made by its own server alone,
and have no limit of parts, nor of the time that a client takes to read.
All of this is in the loop's thread, so that nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError
from parllel.distributed.web.web_socket import SocketClosedError, SocketHandler

_LOGGER = logging.getLogger("parllel.distributed.web.socket")
_LOGGER.setLevel(logging.ERROR)
_CLOSE_S = 2.0
_MAX_PARTS = 1024  # of a message
_PING_BYTES = 8  # of those that `confirm` sends; others have none
_MAX_REASON = 120  # bytes; a close frame has room for 123


class SocketConnection(asyncio.Protocol):
    """A WebSocket on a transport that was an HTTP connection's.

    Args:
        settings: of the server.
        client: address of the other end, without its port.
        lost: called with this once it is no longer open.
    """

    def __init__(
        self, settings: ServerSettings, client: str, lost: Callable[[SocketConnection], None]
    ) -> None:
        self.client = client
        self._settings = settings
        self._tell_lost = lost
        self._loop = asyncio.get_running_loop()
        # Without compression: pictures have theirs, and small messages could unfold to large ones.
        self._protocol = ServerProtocol(max_size=settings.max_message_bytes, logger=_LOGGER)
        self._transport: Any = None
        self._messages: deque[str | bytes] = deque()
        self._changed = asyncio.Event()  # a message, or the end
        self._n_asked = self._n_confirmed = 0
        self._confirmed = asyncio.Event()  # a pong, or the end
        self._writable = asyncio.Event()
        self._writable.set()
        self._parts: list[bytes | bytearray | memoryview] = []
        self._is_text = False
        self._reads = True
        self._failed = False
        self._lost = False
        self._task: asyncio.Task[None] | None = None
        self._ping_at = self._loop.time() + settings.ping_s
        self._silent_at: float | None = None  # if nothing is heard before
        self._write_deadline: float | None = None
        self._close_deadline: float | None = None

    # ------------------------------------------------------------------ beginning

    def accept(self, transport: Any, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Answer the handshake, and take the transport over.

        Raises:
            WebError: if it is no handshake; the transport is still the caller's.
        """
        lines = [b"GET " + target + b" HTTP/1.1", *(b": ".join(pair) for pair in headers), b"", b""]
        self._protocol.receive_data(b"\r\n".join(lines))
        requests = [one for one in self._protocol.events_received() if isinstance(one, Request)]
        if not requests:
            raise WebError(400, "expected the handshake of a WebSocket")
        response = self._protocol.accept(requests[0])
        if response.status_code != 101:
            added = tuple(
                (name.lower().encode(), response.headers[name].encode())
                for name in ("Upgrade", "Sec-WebSocket-Version")
                if name in response.headers
            )
            raise WebError(response.status_code, "expected the handshake of a WebSocket", added)
        self._transport = transport
        self._protocol.send_response(response)
        self._flush()
        transport.set_protocol(self)

    async def serve(self, handler: SocketHandler) -> None:
        """Have it handled, and close it at the end; never raise."""
        self._task = asyncio.current_task()
        try:
            await handler(self)
        except SocketClosedError:
            pass
        except asyncio.CancelledError:
            self.close(CloseCode.GOING_AWAY, "the server ends")
        except BaseException:
            # With its traceback here, and none for the client, who could learn from it.
            _LOGGER.exception("the handler of a WebSocket failed")
            self.close(CloseCode.INTERNAL_ERROR, "the server made a mistake; its log says which")
        else:
            self.close()

    # ------------------------------------------------------------------ for the handler

    async def receive(self) -> str | bytes:
        """Return the next message."""
        while not self._messages:
            self._raise_if_closed()
            self._read(True)
            self._changed.clear()
            await self._changed.wait()
        return self._messages.popleft()

    async def send(self, message: str | bytes) -> None:
        """Send a message, once those before it have mostly been taken by the client."""
        await self._writable.wait()
        self._raise_if_closed()
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        self._flush()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Begin to close it; does nothing if that has begun."""
        if self._protocol.state is OPEN and not self._lost:
            said = reason.encode()[:_MAX_REASON].decode("utf-8", "ignore")
            self._protocol.send_close(code, said)
            self._flush()
            self._end_of_messages()

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Iterate over messages until it is closed."""
        while True:
            try:
                message = await self.receive()
            except SocketClosedError:
                return
            yield message

    def _raise_if_closed(self) -> None:
        if self._lost or self._protocol.state is not OPEN:
            raise SocketClosedError(
                self._protocol.close_code or CloseCode.ABNORMAL_CLOSURE,
                self._protocol.close_reason or "",
            )

    async def confirm(self) -> None:
        """Wait until the client has taken all that was sent before."""
        self._n_asked += 1
        number = self._n_asked
        self._raise_if_closed()
        self._protocol.send_ping(number.to_bytes(_PING_BYTES, "big"))
        self._flush()
        while self._n_confirmed < number:
            self._raise_if_closed()
            self._confirmed.clear()
            await self._confirmed.wait()

    # ------------------------------------------------------------------ for the transport

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._silent_at = None
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and not self._failed:
                self._take(event)
        self._flush()
        if self._protocol.state is not OPEN:
            self._end_of_messages()

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = frame.opcode is Opcode.TEXT
            self._parts = []
        elif frame.opcode is Opcode.PONG:
            self._take_pong(bytes(frame.data))
            return
        elif frame.opcode is not Opcode.CONT:
            return
        self._parts.append(frame.data)
        # Parts may be empty, so that the limit of a message's bytes does not limit them.
        if len(self._parts) > _MAX_PARTS:
            self._fail(CloseCode.POLICY_VIOLATION, "a message in too many parts")
        elif frame.fin:
            self._take_message(b"".join(self._parts))
            self._parts = []

    def _take_message(self, data: bytes) -> None:
        try:
            self._messages.append(data.decode() if self._is_text else data)
        except UnicodeDecodeError:
            self._fail(CloseCode.INVALID_DATA, "expected text in UTF-8")
            return
        self._changed.set()
        self._read(False)

    def _take_pong(self, data: bytes) -> None:
        number = int.from_bytes(data, "big")
        # A client may send pongs that answer nothing.
        if len(data) == _PING_BYTES and number <= self._n_asked:
            self._n_confirmed = max(self._n_confirmed, number)
            self._confirmed.set()

    def _fail(self, code: int, reason: str) -> None:
        self._failed = True
        self._protocol.fail(code, reason)

    def _read(self, reads: bool) -> None:
        """Have the transport read on, or not: what a handler does not take must not fill the memory."""
        if reads is not self._reads and not self._transport.is_closing():
            self._reads = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                # Half of it, and the client's bytes are still read: a connection that is closed with some
                # unread is reset, and the client may not get the reason.
                self._transport.write_eof()
        if self._protocol.state is not OPEN and self._close_deadline is None:
            self._close_deadline = self._loop.time() + _CLOSE_S
            # Its answer may be what is to be read next.
            self._read(True)

    def _end_of_messages(self) -> None:
        self._changed.set()
        self._confirmed.set()
        # `send` may wait for a client that has closed, and will read no more.
        self._writable.set()

    def eof_received(self) -> None:
        """Take that the client sends no more."""
        self._protocol.receive_eof()
        self._flush()
        self._end_of_messages()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the handler: the client has gone."""
        self._lost = True
        self._tell_lost(self)
        self._end_of_messages()
        # It may wait for something else than this WebSocket.
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Have `send` wait: the client does not read as fast as messages come."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Have `send` go on."""
        self._writable.set()

    # ------------------------------------------------------------------ for the server

    def check(self, now: float) -> None:
        """Send a ping if it is time, and end what is too late; called ten times a second.

        now: of the event loop's clock.
        """
        if self._transport.get_write_buffer_size() == 0:
            self._write_deadline = None
        elif self._write_deadline is None:
            self._write_deadline = now + self._settings.write_s
        deadlines = (self._write_deadline, self._close_deadline, self._silent_at)
        if any(deadline is not None and now > deadline for deadline in deadlines):
            self._transport.abort()
        elif self._protocol.state is OPEN and now >= self._ping_at and self._reads:
            # While nothing is read, nothing can be heard.
            self._ping_at = now + self._settings.ping_s
            self._silent_at = now + self._settings.ping_s
            self._protocol.send_ping(b"")
            self._flush()

    def shutdown(self) -> None:
        """Close it, as the server ends."""
        self.close(CloseCode.GOING_AWAY, "the server ends")
        self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()
