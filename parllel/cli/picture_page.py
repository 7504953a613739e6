"""A page in a browser that shows pictures one after the other, for machines without a screen.

    main thread     show(): waits for a viewer and while paused; writes the newest picture -> viewers wake up
    server thread   one coroutine for each viewer: sends the newest picture; reads "pause", "play", "step"

A slow viewer skips pictures. Without a viewer, the main thread waits, so nothing is played unseen.
"""

from __future__ import annotations

import asyncio
import html
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import resources

from parllel.distributed.web import (
    Request,
    Response,
    Route,
    ServerSettings,
    SocketRoute,
    WebServer,
    WebSocket,
    build_app,
)
from parllel.distributed.web.web_socket import SocketClosedError
from parllel.pictures.png import png_bytes
from parllel.pictures.rendered_env import DEFAULT_FPS, Frame
from parllel.types import Closeable

_LOOK_S = 0.1  # between looks for signals while this thread waits
_LAST_S = 10.0  # for viewers to receive the end


class PicturePage(Closeable):
    """Shows pictures at a steady rate in a page, at an address of this machine.

    Args:
        title: title of the page.
        fps: maximum number of pictures per second.
        port: port to listen on; 0 picks a free one.
        check: function called several times a second while `show` waits. What it raises ends the wait.

    Raises:
        OSError: if the port cannot be used.
        ValueError: for an invalid port, or `fps` that is not above 0.
    """

    def __init__(
        self,
        title: str,
        fps: float = DEFAULT_FPS,
        port: int = 0,
        *,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        if not 0 < fps < float("inf"):
            raise ValueError(f"fps: expected a number above 0, got {fps}")
        page = resources.files("parllel.cli").joinpath("picture_page.html").read_text()
        self._page = page.replace("TITLE", html.escape(title)).encode()
        self._fps, self._check = fps, check
        self._changed = threading.Condition()
        # All below are read and written under its lock.
        self._viewers: set[_Viewer] = set()
        self._state: tuple[int, str, bytes] = (0, "waiting for the first picture", b"")
        self._paused = self._ended = False
        self._steps = 0  # that viewers have asked for
        self._due = 0.0
        routes = [Route("/", {"GET": self._get})]
        sockets = [SocketRoute("/pictures", self._watch)]
        self._server = WebServer(build_app(routes, ServerSettings(port=port), sockets=sockets))

    def start(self) -> None:
        """Serve the page, and print its address."""
        self._server.start()
        self._server.announce()
        print("episodes are played while the page is open; Ctrl-C ends", flush=True)

    def show(self, frame: Frame, caption: str) -> None:
        """Show a picture, uint8 [H, W, 3], once it is time and somebody watches."""
        self._wait()
        self._publish(caption, png_bytes(frame))

    def end(self, caption: str) -> None:
        """Show a last caption, and wait until all viewers have received it, for some seconds at most."""
        with self._changed:
            self._ended = True
            picture = self._state[2]
        self._publish(caption, picture)
        with self._changed:
            self._changed.wait_for(lambda: not self._viewers, _LAST_S)

    def close(self) -> None:
        """End the server. Idempotent."""
        self._server.close()

    def _wait(self) -> None:
        with self._changed:
            while not self._viewers or (self._paused and not self._steps):
                self._changed.wait(_LOOK_S)
                self._check()
            if self._paused:
                self._steps -= 1
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._due = time.monotonic() + 1 / self._fps

    def _publish(self, caption: str, picture: bytes) -> None:
        with self._changed:
            self._state = (self._state[0] + 1, caption, picture)
            self._wake()

    def _wake(self) -> None:
        for viewer in self._viewers:
            # A loop that has ended has no viewers left to tell.
            with suppress(RuntimeError):
                viewer.loop.call_soon_threadsafe(viewer.news.set)

    # ------------------------------------------------------------------ in the server's thread

    def _get(self, request: Request) -> Response:
        return Response(self._page, content_type="text/html; charset=utf-8")

    async def _watch(self, socket: WebSocket) -> None:
        viewer = _Viewer()
        with self._changed:
            self._viewers.add(viewer)
            self._changed.notify_all()
        listening = asyncio.ensure_future(self._listen(socket))
        try:
            with suppress(SocketClosedError):
                await self._send_all(socket, viewer)
        finally:
            listening.cancel()
            with self._changed:
                self._viewers.discard(viewer)
                self._changed.notify_all()

    async def _send_all(self, socket: WebSocket, viewer: _Viewer) -> None:
        sent = -1
        while True:
            with self._changed:
                viewer.news.clear()
                number, caption, picture = self._state
                paused, ended = self._paused, self._ended
            if number != sent and picture:
                await socket.send(picture)
            sent = number
            await socket.send(json.dumps({"caption": caption, "paused": paused, "ended": ended}))
            if ended:
                await socket.confirm()
                return
            await viewer.news.wait()

    async def _listen(self, socket: WebSocket) -> None:
        with suppress(SocketClosedError):
            async for message in socket:
                with self._changed:
                    if message in ("pause", "step"):
                        self._paused = True
                    elif message == "play":
                        self._paused, self._steps = False, 0
                    self._steps += message == "step"
                    self._changed.notify_all()
                    self._wake()


class _Viewer:
    """One open page; made in the server's thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
