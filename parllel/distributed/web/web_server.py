"""Serve an application: in a thread of this process, or in the foreground until a signal.

main thread     start, close                 or run, whose signal handlers only ask for the end
server thread   the event loop: connections, deadlines, the application
handlers        threads of the application

The end comes in steps: new requests get a 503, WebSockets a close with 1001; running requests are waited for,
up to a limit; then the listening socket, the connections and the threads are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from parllel.distributed.web.address import is_loopback, listening_socket, network_address
from parllel.distributed.web.app import App
from parllel.distributed.web.connection import Connections, HttpConnection
from parllel.distributed.web.server_settings import ServerSettings
from parllel.errors import ClosedError, WrongStateError
from parllel.types import Closeable

_START_S = 30.0
_CLOSE_S = 5.0  # for what remains once running requests have had their time
_TICK_S = 0.1  # between looks at deadlines
_BACKLOG = 2048  # connections that the system holds until they are accepted


class WebServer(Closeable):
    """A server that is bound to its address at once, and answers after `start()` or in `run()`.

    Args:
        app: of `build_app`.
        settings: those of the application, unless given.

    Raises:
        ValueError: if the address is beyond loopback and there is no token.
        OSError: if the address cannot be resolved or bound; the message says what to do.
    """

    def __init__(self, app: App, settings: ServerSettings | None = None) -> None:
        self.app = app
        self.settings = settings or app.settings
        self._socket = listening_socket(self.settings)
        self._address = self._socket.getsockname()[:2]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving = threading.Event()
        self._end: asyncio.Event | None = None
        self._asked = False
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._forced = False
        self._closed = False

    @property
    def url(self) -> str:
        """Where clients reach it from this machine, without a slash at the end."""
        host, port = self._address
        # All addresses, which is none to connect to.
        return _url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    @property
    def is_local(self) -> bool:
        """Whether it is reached from this machine alone."""
        return is_loopback(self._address[0])

    @property
    def network_url(self) -> str | None:
        """Where other machines reach it; None if they do not, or if this machine has no such address."""
        host, port = self._address
        found = network_address(host)
        return None if found is None else _url(found, port)

    def announce(self, ending: str = "") -> None:
        """Print the URL, and whom else it lets in where other machines reach it.

        The first line is for programs as well, on standard output: "serving on URL". Standard error has the
        rest.

        ending: of each URL, such as a query.
        """
        print(f"serving on {self.url}{ending}", flush=True)
        if self.is_local:
            return
        elsewhere = self.network_url
        if elsewhere is not None and elsewhere != self.url:
            print(f"from other machines: {elsewhere}{ending}", file=sys.stderr)
        print(
            f"warning: at {self.settings.host} every machine that reaches this one can connect. Nothing is "
            "encrypted, so the token can be read on its way, and whoever has it can use this server. Listen "
            "on 127.0.0.1 and come through ssh, or put a proxy before it that encrypts",
            file=sys.stderr,
            flush=True,
        )

    def start(self) -> WebServer:
        """Serve in a thread; return when requests are accepted.

        Raises:
            WrongStateError: if it has been started or closed before.
        """
        self._check_new()
        self._thread = threading.Thread(
            target=self._run_in_thread, name="parllel-web-server", daemon=True
        )
        self._thread.start()
        # Set after an error too, so that this does not wait for a server that will not come.
        if not self._serving.wait(_START_S) or self._error is not None:
            error = self._error
            self.close()
            raise RuntimeError(f"the server at {self.url} did not start") from error
        return self

    def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Serve in this thread until SIGTERM, SIGINT or `close()`, then end in order and return.

        A second signal does not wait for running requests.

        started: called when requests are accepted.
        """
        self._check_new()
        self._started = started
        try:
            with self._ended_by_signals():
                asyncio.run(self._serve())
        finally:
            # First, as `close` waits for it, here as in other threads.
            self._done.set()
            self.close()

    def close(self) -> None:
        """End in order, and wait for it; idempotent. Safe to call from any thread but the server's own."""
        self._ask_to_end()
        limit_s = self.settings.end_s + _CLOSE_S
        if self._thread is not None:
            self._thread.join(limit_s)
        elif self._loop is not None:
            self._done.wait(limit_s)
        self._closed = True
        self._socket.close()
        self.app.close(0.5 if self._forced else 1.0)

    def __enter__(self) -> WebServer:
        return self if self._thread is not None else self.start()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "serving" if self._serving.is_set() else "bound"
        return f"WebServer({self.url}, {state})"

    _started: Callable[[], object] = staticmethod(lambda: None)

    def _check_new(self) -> None:
        if self._closed:
            raise ClosedError(f"the server at {self.url} has been closed; make another")
        if self._loop is not None or self._thread is not None:
            raise WrongStateError(f"the server at {self.url} has been started already")

    def _run_in_thread(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._serving.set()

    async def _serve(self) -> None:
        # The event before the loop, by which `_ask_to_end` finds it.
        self._end = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # After them: another thread sets it before it looks for the loop, so that one of both sees the other.
        if self._asked:
            self._end.set()
        connections = Connections(self.app, self.settings)
        listening = await self._loop.create_server(
            lambda: HttpConnection(connections), sock=self._socket, backlog=_BACKLOG
        )
        try:
            self._serving.set()
            self._started()
            while not self._end.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._end.wait(), _TICK_S)
                connections.check(self._loop.time())
            await self._finish_running(connections)
        finally:
            listening.close()
            await connections.close()

    async def _finish_running(self, connections: Connections) -> None:
        self.app.ending = True
        self.app.close_sockets()
        limit = time.monotonic() + self.settings.end_s
        # Looked at again and again, as a signal handler sets `_forced`, and can wake nothing but the loop.
        while (
            (self.app.running or self.app.sockets) and not self._forced and time.monotonic() < limit
        ):
            await asyncio.sleep(0.02)
            connections.check(asyncio.get_running_loop().time())

    def _ask_to_end(self) -> None:
        self._asked = True
        loop, end = self._loop, self._end
        # Of the loop's thread too, for a signal: only this wakes a loop that waits for sockets.
        if loop is not None and end is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(end.set)

    @contextlib.contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Let the first SIGTERM or SIGINT ask for the end, and the second not wait."""

        def ask(number: int, frame: FrameType | None) -> None:
            self._forced = self._forced or self.app.ending
            self._ask_to_end()

        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
