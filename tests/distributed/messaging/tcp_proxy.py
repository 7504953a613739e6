"""A TCP proxy on loopback that a test disturbs.

    clients --> TcpProxy.address, the same as long as it lives --> target, another after a restart

One thread runs an event loop that does all the forwarding. The test's thread has changes carried out there
(`_do`), and so never meets a half-made connection; `delay_s`, `stalled` and `cut_after` are single words that
the loop reads.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress

from parllel.types import Closeable

_CHUNK = 2**16
_LOOK_S = 0.01
_WAIT_S = 10.0


class TcpProxy(Closeable):
    """Forward connections, until it is told to delay, stall, cut or refuse them."""

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None  # none: connections are accepted and closed
        self.delay_s = 0.0  # on the way there, and again on the way back
        self.stalled = False  # nothing is forwarded; connections stay
        self.cut_after: int | None = None  # bytes from the target, in all, after which all is cut
        self.connections = 0  # ever made
        self._returned = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")
        self._thread.start()
        # Taken once: the address stays while connections are refused.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.host, self.port = probe.getsockname()
        self.accept()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def accept(self) -> None:
        """Accept connections, as from the beginning."""
        self._do(self._start())

    def refuse(self) -> None:
        """Cut what is connected, and refuse further connections."""
        self._do(self._stop())

    def cut(self) -> None:
        """Cut what is connected, in the middle of whatever is sent."""
        self._do(self._cut())

    def close(self) -> None:
        """Cut all and end the thread; may be called twice."""
        if self._loop.is_closed():
            return
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, step) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(_WAIT_S)

    async def _start(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port), backlog=100)
            self._listener.setblocking(False)
            # Not by a task: one that is cancelled may have accepted a connection that nobody then closes.
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _stop(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._cut()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # aborted connections are closed in the next round

    def _accept(self, listener: socket.socket) -> None:
        try:
            near, _ = listener.accept()
        except OSError:  # it was given up meanwhile
            return
        task = asyncio.ensure_future(self._connected(near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also of one that is cancelled before it begins.
        task.add_done_callback(lambda _: near.close())

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def _connected(self, near: socket.socket) -> None:
        self.connections += 1
        if self.target is None:
            return
        reader, writer = await asyncio.open_connection(sock=near)
        self._writers.add(writer)
        try:
            with suppress(OSError):
                await self._join(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.target is not None
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        self._writers.add(far_writer)
        ways = [
            asyncio.ensure_future(self._forward(reader, far_writer, False)),
            asyncio.ensure_future(self._forward(far_reader, writer, True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()
            self._writers.discard(far_writer)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool
    ) -> None:
        """Forward one way; what is delayed does not hold up what comes after it."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            while data := await reader.read(_CHUNK):
                chunks.put_nowait((time.monotonic() + self.delay_s, data))
            chunks.put_nowait((time.monotonic() + self.delay_s, b""))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, data = await chunks.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                while self.stalled:
                    await asyncio.sleep(_LOOK_S)
                if not data:
                    return
                if back and self.cut_after is not None:
                    self._returned += len(data)
                    if self._returned > self.cut_after:
                        # Half of an answer comes through.
                        writer.write(data[: len(data) // 2])
                        self.cut_after, self._returned = None, 0
                        with suppress(OSError):
                            await writer.drain()
                        await self._cut()
                        return
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()
