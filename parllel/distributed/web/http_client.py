"""POST bytes to one URL, over connections that are kept open.

    any thread   post: takes an idle connection or makes one, writes, reads, and gives it back
    any thread   close: closes what is idle; what is in use after its request
                 cancel: ends what is in use as well

`http.client` of the standard library does the work, at a third of the time of a client with more features: a
request takes some 0.1 ms. To it this adds a deadline for the whole exchange, however slowly bytes come and
the resolution of the name included, limits of size, and proxies and link-local addresses by choice. Redirects
are replies like any other, and not followed.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import ipaddress
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
    """A server could not be asked, or its reply not be read; the text has no secrets.

    Attributes:
        reason: the text without the URL before it.
        may_pass: whether another attempt may get a reply.
    """

    def __init__(self, text: str, *, reason: str | None = None, may_pass: bool = False) -> None:
        super().__init__(text)
        self.reason, self.may_pass = text if reason is None else reason, may_pass


class HttpResponse(NamedTuple):
    """What a server replied; headers are found by names in any case."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def content_type(self) -> str:
        """In lower case, without parameters; "" if the server names none."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


class HttpClient(Closeable):
    """Ask one URL.

    Args:
        url: http or https. Path and query are sent as they are; user and password as Basic authorization.
        max_bytes: of a reply.
        use_proxies: whether the proxy is asked that the environment names for this URL, as `http_proxy`,
            `https_proxy`, `all_proxy` and `no_proxy` do.
        refuse_link_local: whether addresses of the link are refused, which in clouds give away secrets.

    Attributes:
        shown: the URL without user and password, for messages.

    Raises:
        ValueError: if the URL cannot be one, or the proxy is not one of http.

    Several threads may use it: each request has a connection of its own while it lasts.
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
        self._idle: list[_Connection] = []  # appending and popping are safe in any thread
        self._in_use: set[_Connection] = set()  # adding and discarding are, too
        self._closed = False

    def post(self, body: bytes, headers: Mapping[str, str], seconds: float) -> HttpResponse:
        """Return the reply.

        seconds: until the last byte of it has come.

        Raises:
            TimeoutError: if that takes longer, once the server was reached.
            HttpError: if the server cannot be reached in time, or the reply is none or too long; and after
                `close`.
        """
        if self._closed:
            raise self._error("used after it was closed")
        connection = self._connection()
        # Of the exchange: a time-out of the socket would begin anew with each byte.
        deadline = connection.deadline = monotonic() + seconds
        self._in_use.add(connection)
        try:
            if self._closed:  # looked at again: `cancel` sets this before it takes what is in use
                connection.cancel()
            if connection.sock is None:
                connection.connect()
            connection.request("POST", self._target, body, {**self._headers, **headers})
            connection.flush()
            response = connection.getresponse()
            data = self._read(response)
        except TimeoutError:
            connection.close()
            raise TimeoutError(f"{self.shown}: no reply within {seconds:g} s") from None
        except (HttpError, http.client.HTTPException, OSError, ValueError, zlib.error) as error:
            connection.close()
            if monotonic() >= deadline:
                raise TimeoutError(f"{self.shown}: no reply within {seconds:g} s") from None
            may_pass = isinstance(error, (http.client.HTTPException, OSError))
            raise self._error(_described(error), may_pass=may_pass) from None
        except BaseException:
            connection.close()
            raise
        finally:
            self._in_use.discard(connection)
        if connection.sock is not None:
            self._idle.append(connection)
        # After it was appended: `close` sets this before it takes the connections, so one of both closes it.
        if self._closed:
            self.close()
        return HttpResponse(response.status, response.headers, data)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        # A length that is announced is refused before anything is read.
        if (response.length or 0) <= self._max_bytes:
            data = response.read(self._max_bytes + 1)
            if len(data) <= self._max_bytes:
                response.read()  # the end of what came in chunks, so that the connection can be used again
                if response.length:  # of which nothing has come; the library takes that for the end
                    raise http.client.IncompleteRead(data, response.length)
            # Some servers pack what was not to be; it may be a thousand times as long as it comes.
            if response.headers.get("Content-Encoding", "").lower() in ("gzip", "deflate"):
                data = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, self._max_bytes + 1)
            if len(data) <= self._max_bytes:
                return data
        raise HttpError(f"its reply has more than {self._max_bytes} bytes")

    def _error(self, reason: str, *, may_pass: bool = False) -> HttpError:
        return HttpError(f"{self.shown}: {reason}", reason=reason, may_pass=may_pass)

    def _connection(self) -> _Connection:
        with contextlib.suppress(IndexError):  # other threads take from them too
            while True:
                # The one that was used last: servers close those that are idle for long.
                connection = self._idle.pop()
                if connection.fresh():
                    return connection
                connection.close()
        return _Connection(self._route)

    def close(self) -> None:
        """Close the connections that are open, one in use after its request. Idempotent."""
        self._closed = True
        with contextlib.suppress(IndexError):  # another thread may close them too
            while True:
                self._idle.pop().close()

    def cancel(self) -> None:
        """Close all connections, those in use as well: their `post` raises HttpError. Idempotent."""
        self.close()
        for connection in self._in_use.copy():
            connection.cancel()


class _Route:
    """How a server is reached: where it is, and by which proxy.

    Attributes:
        host, port, secure: of the server, and whether it speaks TLS.
        proxy, refuse_link_local: the arguments.
    """

    def __init__(
        self, parts: SplitResult, proxy: SplitResult | None, refuse_link_local: bool
    ) -> None:
        self.host, self.secure = parts.hostname or "", parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.proxy, self.refuse_link_local = proxy, refuse_link_local


class _Connection(http.client.HTTPConnection):
    """One connection, on which every wait ends at `deadline`."""

    deadline = 0.0
    auto_open = 0  # `connect` is called with the deadline, and at no other time

    def __init__(self, route: _Route) -> None:
        super().__init__(route.host, route.port)
        self._route = route
        self.default_port = 443 if route.secure else 80  # which the header Host leaves out
        self._parts: list[bytes] = []
        self._cancelled: Future[None] = Future()
        self._raw: socket.socket | None = None  # while it is connected, and then

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
            # In two steps, as `cancel` is to find the socket that shakes hands.
            made = self._raw = _tls_context().wrap_socket(
                made, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = _TimedSocket(made, self)
            made.do_handshake()

    def _connected(self) -> socket.socket:
        host, port, proxy = self._route.host, self._route.port, self._route.proxy
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port or 80
        found = _addresses(host, port, self.left_s(), self._cancelled)
        if self._route.refuse_link_local:
            for *_, address in found:
                # What the name means, not how it is written.
                _refuse_link_local(str(address[0]))
        error: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in found:
            made = self._raw = socket.socket(family, kind, protocol)
            try:
                made.settimeout(self.left_s())
                made.connect(address)
                if self._cancelled.done():
                    raise OSError("cancelled")
                return made
            except OSError as problem:
                made.close()
                error = problem
        raise error

    def _open_tunnel(self, proxy: SplitResult) -> None:
        """Have the proxy connect to the server, which may then speak TLS with it."""
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
        """End what another thread waits for."""
        with contextlib.suppress(futures.InvalidStateError):  # cancelled already
            self._cancelled.set_result(None)
        if self._raw is not None:
            with contextlib.suppress(OSError):  # not connected, or closed
                # Of the socket itself: that of TLS would also end what the other thread reads by.
                socket.socket.shutdown(self._raw, socket.SHUT_RDWR)

    def send(self, data: Any) -> None:
        """Keep a part of the request."""
        # In one piece, which wakes the server once: headers and body would be two packets.
        self._parts.append(data)

    def flush(self) -> None:
        """Send the request."""
        parts, self._parts = self._parts, []
        self.sock.sendall(b"".join(parts))

    def left_s(self) -> float:
        left_s = self.deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def fresh(self) -> bool:
        """Return whether the server has neither closed the connection nor said what it was not asked."""
        return not wait([self.sock.fileno()], 0.0)


# Look-ups that have not ended, which who asks for the same name waits for as well: one for each name that no
# server answers, however often it is asked for.
_looking: dict[tuple[str, int], Future[list[Any]]] = {}
_lock = threading.Lock()


def _addresses(host: str, port: int, seconds: float, cancelled: Future[None]) -> list[Any]:
    """Return what `getaddrinfo` does.

    Raises:
        TimeoutError: if it takes longer. It cannot be ended, and goes on in its thread.
        OSError, UnicodeError: as it does; OSError also once `cancelled` is done.
    """
    with _lock:
        looking = _looking.get((host, port))
        if looking is None:
            looking = _looking[host, port] = Future()
            # A daemon, as the process must be able to end before the system gives up, after half a minute.
            threading.Thread(
                target=_look_up, args=(host, port, looking), name="look-up", daemon=True
            ).start()
    ends: list[Future[Any]] = [looking, cancelled]
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
    """What `http.client` uses of a socket.

    If the server is to close the connection, it closes this before it has read the reply. As with sockets
    themselves, the last reader closes it then.
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
    """The bytes of a socket; closing it leaves the socket open for the next reply."""

    def __init__(self, owner: _TimedSocket, sock: socket.socket, connection: _Connection) -> None:
        self._owner, self._sock, self._connection = owner, sock, connection

    def close(self) -> None:
        if not self.closed:
            self._owner.reader_closed()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._connection.left_s())
        return self._sock.recv_into(buffer)


def redacted(url: str) -> str:
    """Return a URL without user and password."""
    with contextlib.suppress(ValueError):
        return _split(url)[1]
    return f"{url.partition('://')[0]}://..."


def _split(url: str) -> tuple[SplitResult, str]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # not shown, as what is wrong may stand before a secret
        raise ValueError("URL: expected http://host:port/, got one that cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"URL: expected http:// or https:// and a host, got {parts.scheme}://...")
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if any(letter <= " " or letter >= "\x7f" for letter in shown):
        raise ValueError(f"URL: expected printable ASCII, got {shown!r}")
    return parts, shown


def _authorization(parts: SplitResult, header: str) -> dict[str, str]:
    """Return user and password of a URL as a header of Basic authorization; empty if it has neither."""
    if parts.username is None and parts.password is None:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return {header: "Basic " + base64.b64encode(pair.encode()).decode()}


def _proxy_of(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment, or the system, names for a URL; None for none."""
    # Here, as few clients ask one.
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
    """Return how servers are verified: by the system's certificates, or those of SSL_CERT_FILE."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if sys.platform != "win32" and paths.cafile is None and paths.capath is None:
        # A Python that was built for another system, such as those of python.org on macOS, finds none.
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
