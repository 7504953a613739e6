"""HTTP client that POSTs bytes to one URL over persistent connections::

    any thread   post: pops an idle connection or opens one, writes, reads, and returns it to the idle ones
    any thread   close: closes the idle connections at once, and those in use after their request
                 cancel: closes connections in use as well

Built on `http.client`, which takes a third of the time of a full-featured client: about 0.1 ms per request.
Adds a deadline for the whole exchange (name resolution and trickling bytes included), size limits, optional
proxies, and refusal of link-local addresses. Redirects are returned like any other reply, not followed.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import ipaddress
import os
import socket
import ssl
import sys
import threading
import zlib
from collections.abc import Mapping
from concurrent import futures
from concurrent.futures import Future
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from parllel.types import Closeable

MAX_BYTES = 16 << 20  # of a reply


class HttpError(Exception):
    """A request failed, or its reply could not be read. The message contains no secrets.

    Attributes:
        reason: the message without the leading URL.
        may_pass: whether the failure may be temporary, so that a retry makes sense.
    """

    def __init__(self, text: str, *, reason: str | None = None, may_pass: bool = False) -> None:
        super().__init__(text)
        self.reason, self.may_pass = text if reason is None else reason, may_pass


class HttpResponse(NamedTuple):
    """Reply of a server. Header names are case-insensitive."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def content_type(self) -> str:
        """Media type in lower case, without parameters; "" if the reply has none."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


class HttpClient(Closeable):
    """Client of one URL. Thread-safe: each request uses a separate connection.

    Args:
        url: an http or https URL. Path and query are sent unchanged. User and password are sent as
            Basic authorization.
        max_bytes: maximum size of a reply.
        use_proxies: whether to use the proxy configured in the environment for this URL
            (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`).
        refuse_link_local: whether to refuse link-local addresses, at which clouds serve
            credentials.

    Attributes:
        shown: the URL without user and password, for messages.

    Raises:
        ValueError: for an invalid URL, or a proxy that is not http.
    """

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = MAX_BYTES,
        use_proxies: bool = False,
        refuse_link_local: bool = True,
    ) -> None:
        parts, self.shown = _split(url)
        self._route = _Route(parts, _proxy_of(parts) if use_proxies else None, refuse_link_local)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._max_bytes = max_bytes
        self._headers = _authorization(parts, "Authorization")
        if self._route.proxy is not None and not self._route.secure:
            self._target = self.shown.partition("#")[0]
            self._headers.update(_authorization(self._route.proxy, "Proxy-Authorization"))
        # Neither needs a lock: append, pop, add and discard are atomic.
        self._idle: list[_Connection] = []
        self._in_use: set[_Connection] = set()
        self._closed = False

    def post(self, body: bytes, headers: Mapping[str, str], seconds: float) -> HttpResponse:
        """Send a request and return the reply.

        seconds: time limit for the whole exchange, up to the last byte of the reply.

        Raises:
            TimeoutError: if the server was reached but the reply is not complete in time.
            HttpError: if the server cannot be reached in time, the reply is invalid or too long, or
                the client was closed.
        """
        if self._closed:
            raise self._error("used after close()")
        connection = self._connection()
        # One deadline for the exchange: a time-out of the socket starts again with every byte received.
        deadline = connection.deadline = monotonic() + seconds
        self._in_use.add(connection)
        try:
            # Checked again: `cancel` sets this before it reads `_in_use`, so one of the two threads sees the
            # other's write, and no request outlives it.
            if self._closed:
                connection.cancel()
            if connection.sock is None:
                connection.connect()
            connection.request("POST", self._target, body, {**self._headers, **headers})
            connection.flush()
            response = connection.getresponse()
            data = self._read(response)
        # Whatever failed, the connection is closed: a late reply on it would answer the next request.
        except TimeoutError:
            connection.close()
            raise TimeoutError(f"{self.shown}: no reply within {seconds:g} s") from None
        except (HttpError, http.client.HTTPException, OSError, ValueError, zlib.error) as error:
            connection.close()
            # Past the deadline it is a time-out to the caller, whichever error reports it.
            if monotonic() >= deadline:
                raise TimeoutError(f"{self.shown}: no reply within {seconds:g} s") from None
            may_pass = isinstance(error, (http.client.HTTPException, OSError))
            raise self._error(_described(error), may_pass=may_pass) from None
        except BaseException:
            connection.close()
            raise
        finally:
            self._in_use.discard(connection)
        # None after a reply with `Connection: close`.
        if connection.sock is not None:
            self._idle.append(connection)
        # Checked after appending: `close` sets this before it empties `_idle`, so one of the two threads
        # closes the connection.
        if self._closed:
            self.close()
        return HttpResponse(response.status, response.headers, data)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        # An announced length is refused before anything is read.
        if (response.length or 0) <= self._max_bytes:
            data = response.read(self._max_bytes + 1)
            if len(data) <= self._max_bytes:
                # The end marker of a chunked reply, without which the connection cannot be used again.
                response.read()
                # The connection ended early, which the library takes for the end of the reply.
                if response.length:
                    raise http.client.IncompleteRead(data, response.length)
            # Some servers compress although not asked to. Bounded again: it may unpack to a thousand times
            # the size.
            if response.headers.get("Content-Encoding", "").lower() in ("gzip", "deflate"):
                data = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, self._max_bytes + 1)
            if len(data) <= self._max_bytes:
                return data
        raise HttpError(f"its reply has more than {self._max_bytes} bytes")

    def _error(self, reason: str, *, may_pass: bool = False) -> HttpError:
        return HttpError(f"{self.shown}: {reason}", reason=reason, may_pass=may_pass)

    def _connection(self) -> _Connection:
        # Popped until empty rather than tested before: other threads pop too.
        with contextlib.suppress(IndexError):
            while True:
                # Last in, first out: servers close connections that have been idle for long.
                connection = self._idle.pop()
                if connection.fresh():
                    return connection
                connection.close()
        return _Connection(self._route)

    def close(self) -> None:
        """Close idle connections now, and connections in use after their request. Idempotent."""
        self._closed = True
        with contextlib.suppress(IndexError):  # another thread may be closing them too
            while True:
                self._idle.pop().close()

    def cancel(self) -> None:
        """Close all connections; `post` calls in progress raise HttpError. Idempotent."""
        self.close()
        # A copy, as requests that end meanwhile remove themselves.
        for connection in self._in_use.copy():
            connection.cancel()


class _Route:
    """Where a server is and how to reach it.

    Attributes:
        host, port, secure: of the server; `secure` means TLS.
        proxy, refuse_link_local: as given.
    """

    def __init__(
        self, parts: SplitResult, proxy: SplitResult | None, refuse_link_local: bool
    ) -> None:
        self.host, self.secure = parts.hostname or "", parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.proxy, self.refuse_link_local = proxy, refuse_link_local


class _Connection(http.client.HTTPConnection):
    """Connection on which every wait ends at `deadline`.

    Used by one thread at a time; other threads only call `cancel`.
    """

    deadline = 0.0
    auto_open = 0  # `post` calls `connect` itself, under the deadline; the library never reopens

    def __init__(self, route: _Route) -> None:
        super().__init__(route.host, route.port)
        self._route = route
        self.default_port = 443 if route.secure else 80  # omitted from the Host header
        self._parts: list[bytes] = []
        self._cancelled: Future[None] = Future()
        self._raw: socket.socket | None = (
            None  # what `cancel` shuts down, from before it is connected
        )

    def connect(self) -> None:
        try:
            made = self._connected()
        except TimeoutError:
            raise HttpError("cannot be reached in time") from None
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock: Any = _TimedSocket(made, self)
        if self._route.secure:
            if self._route.proxy is not None:
                self._open_tunnel(self._route.proxy)
            made.settimeout(self.left_s())
            # Handshake as a separate step, so that `cancel` finds the wrapped socket in `_raw` during it.
            made = self._raw = _tls_context().wrap_socket(
                made, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = _TimedSocket(made, self)
            # `cancel` may have found the plain socket, which has no descriptor since it was wrapped.
            if self._cancelled.done():
                raise OSError("cancelled")
            made.do_handshake()

    def _connected(self) -> socket.socket:
        host, port, proxy = self._route.host, self._route.port, self._route.proxy
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port or 80
        found = _addresses(host, port, self.left_s(), self._cancelled)
        if self._route.refuse_link_local:
            for *_, address in found:
                # Every resolved address is checked, not the name: a name may point to a link-local address.
                _refuse_link_local(str(address[0]))
        error: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in found:
            # Published before it connects, so that `cancel` can interrupt a connection attempt.
            made = self._raw = socket.socket(family, kind, protocol)
            try:
                made.settimeout(self.left_s())
                made.connect(address)
                # `cancel` may have found no socket, or one that was not connected and could not be shut down.
                if self._cancelled.done():
                    raise OSError("cancelled")
                return made
            except OSError as problem:
                made.close()
                error = problem
        raise error

    def _open_tunnel(self, proxy: SplitResult) -> None:
        """Open a tunnel through the proxy (CONNECT), over which TLS is then spoken with the server."""
        server = (
            f"{self.host}:{self.port}" if ":" not in self.host else f"[{self.host}]:{self.port}"
        )
        heads = {"Host": server, **_authorization(proxy, "Proxy-Authorization")}
        lines = [f"CONNECT {server} HTTP/1.1", *(f"{k}: {v}" for k, v in heads.items()), "", ""]
        self.sock.sendall("\r\n".join(lines).encode())
        response = http.client.HTTPResponse(self.sock, method="CONNECT")
        try:
            response.begin()
        finally:
            response.close()
        if response.status != 200:
            raise HttpError(f"cannot be reached: its proxy answered with status {response.status}")

    def cancel(self) -> None:
        """Interrupt the thread that waits on this connection."""
        # The future ends a wait for the resolver, the shutdown one for the socket. The thread itself closes
        # the socket: closed here, its number could belong to another file before that thread uses it again.
        with contextlib.suppress(futures.InvalidStateError):  # cancelled already
            self._cancelled.set_result(None)
        if self._raw is not None:
            with contextlib.suppress(OSError):  # not connected, or closed
                # The plain socket's method: SSLSocket.shutdown would drop the TLS state the other thread
                # reads with.
                socket.socket.shutdown(self._raw, socket.SHUT_RDWR)

    def send(self, data: Any) -> None:
        """Buffer a part of the request until `flush`."""
        # Sent in one piece, which wakes the server once: headers and body would be two packets.
        self._parts.append(data)

    def flush(self) -> None:
        """Send the buffered request."""
        parts, self._parts = self._parts, []
        self.sock.sendall(b"".join(parts))

    def left_s(self) -> float:
        left_s = self.deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def fresh(self) -> bool:
        """Return whether an idle connection is still usable."""
        # Readable while idle means that the server closed it, or sent something that nobody requested.
        return not wait([self.sock.fileno()], 0.0)


# Look-ups in progress, by host and port; threads that need the same name share one. A name that no server
# answers costs one thread, however often it is requested.
#
#   requesting threads   join a look-up or start one, and wait for it or for their own cancellation
#   look-up thread       sets the future, then removes it; nothing is cached
_looking: dict[tuple[str, int], Future[list[Any]]] = {}
_lock = threading.Lock()


def _renew_in_child() -> None:
    """Forget look-ups whose threads a fork does not have, one of which may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _looking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)


def _addresses(host: str, port: int, seconds: float, cancelled: Future[None]) -> list[Any]:
    """Call `getaddrinfo` with a time limit.

    Raises:
        TimeoutError: if it takes longer. The call cannot be interrupted and continues in its thread.
        OSError, UnicodeError: as raised by `getaddrinfo`; OSError also once `cancelled` is done.
    """
    with _lock:
        looking = _looking.get((host, port))
        if looking is None:
            looking = Future()
            # A daemon: the resolver gives up after half a minute, for which the process must not wait.
            threading.Thread(
                target=_look_up, args=(host, port, looking), name="look-up", daemon=True
            ).start()
            # Once it runs: later requests would join a look-up that could not start, and wait in vain. It
            # cannot end before this, as it removes the future under the lock.
            _looking[host, port] = looking
    ends: list[Future[Any]] = [looking, cancelled]
    # Outside of the lock, which guards only the dict: a look-up may take half a minute.
    done, _ = futures.wait(ends, seconds, futures.FIRST_COMPLETED)
    if looking in done:
        return looking.result()
    if done:
        raise OSError("cancelled")
    raise TimeoutError(f"no address of {host}")


def _look_up(host: str, port: int, looking: Future[list[Any]]) -> None:
    try:
        looking.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except Exception as error:
        looking.set_exception(error)
    finally:
        with _lock:
            del _looking[host, port]


class _TimedSocket:
    """The part of a socket's interface that `http.client` uses, with the connection's deadline.

    When a reply ends its connection, `http.client` closes this before it has read the body. As with a real
    socket, the last reader then closes it.
    """

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock, self._connection = sock, connection
        self._readers = 0
        self._closed = False

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._connection.left_s())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_TimedReader(self, self._sock, self._connection), 65536)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._closed = True
        if not self._readers:
            self._sock.close()

    def reader_closed(self) -> None:
        self._readers -= 1
        if self._closed:
            self.close()


class _TimedReader(io.RawIOBase):
    """Byte stream of one reply. Closing it leaves the socket open for the next reply."""

    def __init__(self, owner: _TimedSocket, sock: socket.socket, connection: _Connection) -> None:
        self._owner, self._sock, self._connection = owner, sock, connection

    def close(self) -> None:
        if not self.closed:
            self._owner.reader_closed()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Set for every read, as the time left shrinks; a server that trickles bytes cannot stretch it.
        self._sock.settimeout(self._connection.left_s())
        return self._sock.recv_into(buffer)


def redacted(url: str) -> str:
    """Return a URL without user and password."""
    with contextlib.suppress(ValueError):
        return _split(url)[1]
    # Unreadable: what follows the scheme may be a secret.
    return f"{url.partition('://')[0]}://..."


def _split(url: str) -> tuple[SplitResult, str]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # The URL is not shown, since an unreadable one may contain a secret anywhere.
        raise ValueError(
            "URL: expected http://host:port/, got a URL that cannot be parsed"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"URL: expected http:// or https:// and a host, got {parts.scheme}://...")
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if any(letter <= " " or letter >= "\x7f" for letter in shown):
        raise ValueError(f"URL: expected printable ASCII, got {shown!r}")
    return parts, shown


def _authorization(parts: SplitResult, header: str) -> dict[str, str]:
    """Return a Basic authorization header from a URL's user and password; empty without either."""
    if parts.username is None and parts.password is None:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return {header: "Basic " + base64.b64encode(pair.encode()).decode()}


def _proxy_of(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment or the system configures for a URL, or None."""
    # Imported here: few clients use a proxy.
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    url = proxies.get(parts.scheme) or proxies.get("all")
    if not url or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy, shown = urlsplit(url if "://" in url else f"http://{url}"), url.rpartition("@")[2]
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(f"proxy of {parts.hostname}: expected http://host:port, got {shown!r}")
    return proxy


def _tls_context() -> ssl.SSLContext:
    """Return a context that verifies servers by the system's certificates, or those of SSL_CERT_FILE."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if sys.platform != "win32" and paths.cafile is None and paths.capath is None:
        # Python builds that find no system certificates, such as those of python.org on macOS.
        with contextlib.suppress(ModuleNotFoundError):
            import certifi

            context.load_verify_locations(certifi.where())
    return context


def _refuse_link_local(address: str) -> None:
    found: Any = ipaddress.ip_address(address)
    if (getattr(found, "ipv4_mapped", None) or found).is_link_local:
        raise HttpError(f"{address} is a link-local address, which is refused")


def _described(error: Exception) -> str:
    if isinstance(error, HttpError):
        return str(error)
    if isinstance(error, ConnectionRefusedError):
        return "cannot be reached: connection refused"
    if isinstance(error, http.client.RemoteDisconnected):
        return "closed the connection without a reply"
    if isinstance(error, socket.gaierror):
        return f"cannot be reached: {error.strerror}"
    return f"{type(error).__name__}: {str(error)[:200]}"
