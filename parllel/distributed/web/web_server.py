"""Web server of an application, in a thread or in the foreground until a signal.

main thread     start and close, or run, whose signal handlers only request the shutdown
server thread   the event loop: connections, deadlines, the application
handlers        threads of the application's pool

shutdown        1  new requests get a 503, WebSockets a close with 1001
                2  running requests finish, for at most end_s; a second signal skips this step
                3  the listening socket, the connections and the handlers' threads are closed
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
_CLOSE_S = 5.0  # for the rest of the shutdown, after running requests have had end_s
_TICK_S = 0.1  # between checks of deadlines
_BACKLOG = 2048  # connections that the system queues until they are accepted


class WebServer(Closeable):
    """HTTP server. Binds its address on construction and serves after `start()` or during `run()`.

    Args:
        app: application built by `build_app`.
        settings: settings of the server. Default: those of the application.

    Raises:
        ValueError: for an address beyond loopback without a token.
        OSError: if the address cannot be resolved or bound. The message says what to do.
    """

    def __init__(self, app: App, settings: ServerSettings | None = None) -> None:
        self.app = app
        self.settings = settings or app.settings
        # Bound now, so that `url` is known before the start. Clients are refused until it listens.
        self._socket = listening_socket(self.settings)
        self._address = self._socket.getsockname()[:2]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving = threading.Event()  # accepts requests, or failed to start
        self._end: asyncio.Event | None = None  # set in the loop to begin the shutdown
        self._end_requested = False  # a shutdown was requested, perhaps before there was a loop
        self._done = threading.Event()  # `run` has left its loop
        self._error: BaseException | None = None  # that ended the server thread
        self._forced = False  # a second signal: do not wait for running requests
        self._closed = False

    @property
    def url(self) -> str:
        """URL for clients on this machine, without a trailing slash."""
        host, port = self._address
        # The wildcard addresses are for listening only.
        return _url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self._address[0])

    @property
    def network_url(self) -> str | None:
        """URL for other machines, or None if they cannot reach the server."""
        host, port = self._address
        found = network_address(host)
        return None if found is None else _url(found, port)

    def announce(self, ending: str = "") -> None:
        """Print the server's URL, and a warning if other machines can reach it.

        The line "serving on URL" goes to standard output, where programs can read it; the rest goes to
        standard error.

        ending: text appended to each URL, such as a query.
        """
        print(f"serving on {self.url}{ending}", flush=True)
        if self.is_local:
            return
        elsewhere = self.network_url
        if elsewhere is not None and elsewhere != self.url:
            print(f"from other machines: {elsewhere}{ending}", file=sys.stderr)
        print(
            f"warning: at {self.settings.host} every machine that can reach this one can connect. Traffic is "
            "not encrypted: anyone on the path can read the token, and anyone with the token can use the "
            "server. Listen on 127.0.0.1 and use an ssh tunnel, or add a proxy with TLS",
            file=sys.stderr,
            flush=True,
        )

    def start(self) -> WebServer:
        """Serve in a thread. Returns once requests are accepted.

        Raises:
            WrongStateError: if the server was started before.
            ClosedError: if it was closed.
            RuntimeError: if the server thread fails to start.
        """
        self._check_new()
        self._thread = threading.Thread(
            target=self._run_in_thread, name="parllel-web-server", daemon=True
        )
        self._thread.start()
        # A server thread that fails sets the event too, so that its error is raised here at once.
        if not self._serving.wait(_START_S) or self._error is not None:
            error = self._error
            self.close()
            raise RuntimeError(f"the server at {self.url} did not start") from error
        return self

    def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Serve in this thread until SIGTERM, SIGINT or `close()`, then shut down and return.

        A second signal skips the wait for running requests. Outside the main thread, signals are not handled.

        started: function called in this thread once requests are accepted.

        Raises:
            WrongStateError: if the server was started before.
            ClosedError: if it was closed.
        """
        self._check_new()
        self._started = started
        try:
            with self._ended_by_signals():
                asyncio.run(self._serve())
        finally:
            # Before `close`, which waits for it, in this thread as in others.
            self._done.set()
            self.close()

    def close(self) -> None:
        """Shut down and wait for the end. Idempotent. Safe in any thread except the server's own."""
        self._ask_to_end()
        # Bounded: a handler of the event loop that blocks must not block its owner too.
        limit_s = self.settings.end_s + _CLOSE_S
        if self._thread is not None:
            self._thread.join(limit_s)
        elif self._loop is not None:
            self._done.wait(limit_s)
        self._closed = True
        # The loop has closed it, unless the server was never started or did not stop in time.
        self._socket.close()
        # Handlers that still run keep their daemon threads, whose replies nobody awaits.
        self.app.close(0.5 if self._forced else 1.0)

    def __enter__(self) -> WebServer:
        return self if self._thread is not None else self.start()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "serving" if self._serving.is_set() else "bound"
        return f"WebServer({self.url}, {state})"

    _started: Callable[[], object] = staticmethod(lambda: None)

    def _check_new(self) -> None:
        if self._closed:
            raise ClosedError(f"the server at {self.url} has been closed; create a new one")
        if self._loop is not None or self._thread is not None:
            raise WrongStateError(f"the server at {self.url} has already been started")

    def _run_in_thread(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            # After `_error` is written: `start` reads it once this is set.
            self._serving.set()

    async def _serve(self) -> None:
        # The event before the loop: whoever sees the loop also finds the event.
        self._end = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # Read after both are written. `_ask_to_end` writes it before it reads them, so whichever thread comes
        # second sees the other's write, and no request to shut down is lost.
        # A `close` that found no loop to wait for has closed the socket, or is about to: nothing is served.
        if self._end_requested:
            return
        connections = Connections(self.app, self.settings)
        listening = await self._loop.create_server(
            lambda: HttpConnection(connections), sock=self._socket, backlog=_BACKLOG
        )
        try:
            self._serving.set()
            self._started()
            # One wait serves as the clock for deadlines and as the wake-up for the shutdown.
            while not self._end.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._end.wait(), _TICK_S)
                connections.check(self._loop.time())
            await self._finish_running(connections)
        finally:
            # The listening socket first, so that no connection is accepted after the others are closed.
            listening.close()
            await connections.close()

    async def _finish_running(self, connections: Connections) -> None:
        self.app.ending = True
        self.app.close_sockets()
        limit = time.monotonic() + self.settings.end_s
        # Polled: a signal handler sets `_forced`, and it can wake the loop but not a future in it.
        # Connections are still checked, so a client that does not read its reply cannot delay the end.
        while (
            (self.app.running or self.app.sockets) and not self._forced and time.monotonic() < limit
        ):
            await asyncio.sleep(0.02)
            connections.check(asyncio.get_running_loop().time())

    def _ask_to_end(self) -> None:
        self._end_requested = True
        loop, end = self._loop, self._end
        # Also from a signal handler, which runs in the loop's own thread: nothing else wakes a loop that
        # waits for sockets.
        if loop is not None and end is not None:
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                loop.call_soon_threadsafe(end.set)

    @contextlib.contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Shut down on the first SIGTERM or SIGINT; skip the wait for requests on the second."""

        def ask(number: int, frame: FrameType | None) -> None:
            # `ending` is set once the loop has begun to shut down, so a signal repeated at once is still the
            # first.
            self._forced = self._forced or self.app.ending
            self._ask_to_end()

        # Python allows signal handlers in the main thread only.
        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                # None means that the handler was not installed by Python, and cannot be put back.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
