"""WebSocket connections, taken over from an HTTP connection::

    client       sends frames, pongs, a close, or nothing
    transport    data_received: joins frames to messages in `_messages`; reading stops until they are taken
    handler      receive takes from `_messages`; send waits while the client does not read
    WebServer    check(now), ten times a second: sends pings and closes connections past a deadline

    deadlines    ping_s     for a sign of life after a ping
                 write_s    for the client to read what was sent
                 _CLOSE_S   for its answer to a close

Built on the sans-I/O part of websockets: its connections need its own server, and limit neither the number of
parts of a message nor the time a client takes to read.
Everything runs in the loop's thread, so nothing here needs a lock.
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
_PING_BYTES = 8  # payload of the pings of `confirm`; keepalive pings have none
_MAX_REASON = 120  # bytes; a close frame has room for 123


class SocketConnection(asyncio.Protocol):
    """WebSocket on the transport of a former HTTP connection.

    Args:
        settings: settings of the server.
        client: address of the other end, without its port.
        lost: function called with this connection once it is no longer open.
    """

    def __init__(
        self, settings: ServerSettings, client: str, lost: Callable[[SocketConnection], None]
    ) -> None:
        self.client = client
        self._settings = settings
        self._tell_lost = lost
        self._loop = asyncio.get_running_loop()
        # No compression: images have their own, and a small message could unpack to a huge one.
        self._protocol = ServerProtocol(max_size=settings.max_message_bytes, logger=_LOGGER)
        self._transport: Any = None
        self._messages: deque[str | bytes] = deque()
        self._changed = asyncio.Event()  # wakes `receive`: a message, or the end
        self._n_asked = self._n_confirmed = (
            0  # number of the last ping sent, and of the last one answered
        )
        self._confirmed = asyncio.Event()  # wakes `confirm`: a pong, or the end
        self._writable = asyncio.Event()
        self._writable.set()
        self._parts: list[bytes | bytearray | memoryview] = []
        self._is_text = False
        self._reads = True  # whether the transport reads; it pauses while messages wait
        self._failed = False  # the client broke the protocol or a limit; its frames are ignored
        self._lost = False  # the transport is closed
        self._task: asyncio.Task[None] | None = None  # runs the handler
        self._ping_at = self._loop.time() + settings.ping_s
        self._silent_at: float | None = None  # deadline for any byte from the client after a ping
        self._write_deadline: float | None = None
        self._close_deadline: float | None = None

    # ------------------------------------------------------------------ beginning

    def accept(self, transport: Any, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Answer the handshake and take over the transport.

        Raises:
            WebError: for an invalid handshake. The caller then still owns the transport.
        """
        # h11 has parsed these bytes already; the protocol of websockets wants to see them itself.
        lines = [b"GET " + target + b" HTTP/1.1", *(b": ".join(pair) for pair in headers), b"", b""]
        self._protocol.receive_data(b"\r\n".join(lines))
        events = self._protocol.events_received()
        requests = [event for event in events if isinstance(event, Request)]
        if not requests:
            raise WebError(400, "expected a WebSocket handshake")
        response = self._protocol.accept(requests[0])
        if response.status_code != 101:
            # Headers that tell the client what would be accepted, such as the version of the protocol.
            added = tuple(
                (name.lower().encode(), response.headers[name].encode())
                for name in ("Upgrade", "Sec-WebSocket-Version")
                if name in response.headers
            )
            raise WebError(response.status_code, "expected a WebSocket handshake", added)
        self._transport = transport
        self._protocol.send_response(response)
        self._flush()
        # Only after the reply is written: nothing can fail any more and leave the transport without an owner.
        transport.set_protocol(self)

    async def serve(self, handler: SocketHandler) -> None:
        """Run the handler, then close the WebSocket. Never raises."""
        self._task = asyncio.current_task()
        try:
            await handler(self)
        except SocketClosedError:
            pass
        except asyncio.CancelledError:
            # By `connection_lost`, when this close does nothing, or as the event loop shuts down.
            self.close(CloseCode.GOING_AWAY, "the server is shutting down")
        except BaseException:
            # The traceback goes to the log only: to a client it would reveal paths, versions and values.
            _LOGGER.exception("the handler of a WebSocket failed")
            self.close(CloseCode.INTERNAL_ERROR, "internal server error; see the server's log")
        else:
            self.close()

    # ------------------------------------------------------------------ for the handler

    async def receive(self) -> str | bytes:
        """Return the next message."""
        # Messages that arrived before the end are still delivered: the check for the end is inside the loop.
        while not self._messages:
            self._raise_if_closed()
            self._read(True)
            self._changed.clear()
            await self._changed.wait()
        return self._messages.popleft()

    async def send(self, message: str | bytes) -> None:
        """Send a message once the client has read most of the earlier ones."""
        # Set at the end as well, so that this never waits for a client that is gone.
        await self._writable.wait()
        self._raise_if_closed()
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        self._flush()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Start closing the WebSocket. Idempotent."""
        if self._protocol.state is OPEN and not self._lost:
            # Cut by bytes; "ignore" drops a character that the cut divides.
            cut = reason.encode()[:_MAX_REASON].decode("utf-8", "ignore")
            self._protocol.send_close(code, cut)
            self._flush()
            self._end_of_messages()

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Iterate over messages until the WebSocket is closed."""
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
        """Wait until the client has read everything sent before."""
        # The numbered ping is sent after those messages, so its pong proves that they were read.
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
        """Parse bytes from the client."""
        # Any byte is a sign of life, not only the pong: a pong may arrive after a large message.
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
        # Parts may be empty, so the limit on a message's bytes does not bound their number.
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
        # `receive` resumes it when `_messages` is empty, so that TCP slows the client down to the handler.
        self._read(False)

    def _take_pong(self, data: bytes) -> None:
        number = int.from_bytes(data, "big")
        # Unsolicited pongs are legal, and keepalive pings are answered without a payload.
        if len(data) == _PING_BYTES and number <= self._n_asked:
            self._n_confirmed = max(self._n_confirmed, number)
            self._confirmed.set()

    def _fail(self, code: int, reason: str) -> None:
        self._failed = True
        self._protocol.fail(code, reason)

    def _read(self, reads: bool) -> None:
        """Resume or pause reading, so that messages nobody takes cannot fill the memory."""
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
                # b"" asks for the end of our side. Only that half is closed and the client's bytes are still
                # read: closing with unread bytes resets the connection, and the client may lose the reason.
                self._transport.write_eof()
        if self._protocol.state is not OPEN and self._close_deadline is None:
            self._close_deadline = self._loop.time() + _CLOSE_S
            # The client's answer to the close is still to be read.
            self._read(True)

    def _end_of_messages(self) -> None:
        self._changed.set()
        self._confirmed.set()
        # Wakes a `send` that waits for a client which will not read any more; it raises SocketClosedError.
        self._writable.set()

    def eof_received(self) -> None:
        """Handle the end of the client's data."""
        self._protocol.receive_eof()
        self._flush()
        self._end_of_messages()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the handler, because the client has disconnected."""
        self._lost = True
        self._tell_lost(self)
        self._end_of_messages()
        # The events wake a handler that waits on this WebSocket; it may be waiting for something else.
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Make `send` wait, because the client reads more slowly than messages are sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Wake `send`."""
        self._writable.set()

    # ------------------------------------------------------------------ for the server

    def check(self, now: float) -> None:
        """Send a ping when due, and close the connection past a deadline. Called ten times a second.

        now: current time on the event loop's clock.
        """
        # write_s runs until the buffer is empty: a client that reads a byte now and then is cut off too.
        if self._transport.get_write_buffer_size() == 0:
            self._write_deadline = None
        elif self._write_deadline is None:
            self._write_deadline = now + self._settings.write_s
        deadlines = (self._write_deadline, self._close_deadline, self._silent_at)
        if any(deadline is not None and now > deadline for deadline in deadlines):
            self._transport.abort()
        elif self._protocol.state is OPEN and now >= self._ping_at and self._reads:
            # No ping while reading is paused: its pong could not be read, and a slow handler would cost the
            # client its connection.
            self._ping_at = now + self._settings.ping_s
            self._silent_at = now + self._settings.ping_s
            self._protocol.send_ping(b"")
            self._flush()

    def shutdown(self) -> None:
        """Close the WebSocket because the server is shutting down."""
        self.close(CloseCode.GOING_AWAY, "the server is shutting down")
        # Closes once the buffer is written, without waiting for the client's answer.
        self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately, discarding unsent data."""
        self._transport.abort()
