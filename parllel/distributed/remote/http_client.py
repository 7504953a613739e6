"""POST bytes to one URL, over connections that are kept open.

`http.client` of the standard library does the work, at a third of the time of a client with more features: a
request takes some 0.1 ms. To it this adds a deadline for the whole exchange, however slowly bytes come, a
limit of size, and the refusal of redirects, of link-local addresses and of proxies.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from multiprocessing.connection import wait
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

from parllel.types import Closing

MOST_BYTES = 16 << 20  # of a reply


class HttpError(Exception):
    """A server could not be asked, or its reply not be read; the text has no secrets."""


class HttpClient(Closing):
    """Ask one URL.

    Args:
        url: http or https. Path and query are sent as they are; user and password as Basic authorization.
        most_bytes: of a reply.

    Attributes:
        shown: the URL without user and password, for messages.

    Raises:
        ValueError: if the URL cannot be one.

    Several threads may use it: each request has a connection of its own while it lasts.
    """

    def __init__(self, url: str, *, most_bytes: int = MOST_BYTES) -> None:
        parts, self.shown = _split(url)
        self._host, self._secure = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._most_bytes = most_bytes
        self._headers = {}
        if parts.username is not None or parts.password is not None:
            pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._idle: list[_Connection] = []  # appending and popping are safe in any thread
        self._closed = False

    def post(
        self, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, str, bytes]:
        """Return status, content type in lower case without parameters, and body of the reply.

        seconds: until the last byte of it has come.

        Raises:
            TimeoutError: if that takes longer, once the server was reached.
            HttpError: if the server cannot be reached in time, or the reply is none, too long or a redirect.
        """
        if self._closed:
            raise HttpError(f"{self.shown}: used after it was closed")
        connection = self._connection()
        # Of the exchange: a time-out of the socket would begin anew with each byte.
        deadline = connection.deadline = monotonic() + seconds
        try:
            if connection.sock is None:
                connection.connect()
            connection.request("POST", self._target, body, {**self._headers, **headers})
            connection.flush()
            response = connection.getresponse()
            data = self._read(response)
        except TimeoutError:
            connection.close()
            raise TimeoutError(f"{self.shown}: no reply within {seconds:g} s") from None
        except (HttpError, http.client.HTTPException, OSError, ValueError) as error:
            connection.close()
            if monotonic() >= deadline:
                raise TimeoutError(f"{self.shown}: no reply within {seconds:g} s") from None
            raise HttpError(f"{self.shown}: {_described(error)}") from None
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            self._idle.append(connection)
        # After it was appended: `close` sets this before it takes the connections, so one of both closes it.
        if self._closed:
            self.close()
        if 300 <= response.status < 400:
            raise HttpError(
                f"{self.shown}: answered with a redirect ({response.status}), which is not followed"
            )
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return response.status, kind, data

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        # A length that is announced is refused before anything is read.
        if (response.length or 0) <= self._most_bytes:
            data = response.read(self._most_bytes + 1)
            if len(data) <= self._most_bytes:
                response.read()  # the end of what came in chunks, so that the connection can be used again
                return data
        raise HttpError(f"its reply has more than {self._most_bytes} bytes")

    def _connection(self) -> _Connection:
        with contextlib.suppress(IndexError):  # other threads take from them too
            while True:
                # The one that was used last: servers close those that are idle for long.
                connection = self._idle.pop()
                if connection.fresh():
                    return connection
                connection.close()
        return _Connection(self._host, self._port, self._secure)

    def close(self) -> None:
        """Close the connections that are open, one in use after its request; may be called twice."""
        self._closed = True
        with contextlib.suppress(IndexError):  # another thread may close them too
            while True:
                self._idle.pop().close()


class _Connection(http.client.HTTPConnection):
    """One connection, on which every wait ends at `deadline`."""

    deadline = 0.0
    auto_open = 0  # `connect` is called with the deadline, and at no other time

    def __init__(self, host: str, port: int, secure: bool) -> None:
        super().__init__(host, port)
        self._secure = secure
        self.default_port = 443 if secure else 80  # which the header Host leaves out
        self._parts: list[bytes] = []

    def connect(self) -> None:
        try:
            made = self._connected()
        except TimeoutError:
            raise HttpError("cannot be reached in time") from None
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._secure:
            made = ssl.create_default_context().wrap_socket(made, server_hostname=self.host)
        self.sock: Any = _TimedSocket(made, self)

    def _connected(self) -> socket.socket:
        found = _addresses(self.host, self.port, self.left_s())
        for *_, address in found:
            # What the name means, not how it is written: in clouds such addresses give away secrets.
            _refuse_link_local(str(address[0]))
        error: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in found:
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(self.left_s())
                made.connect(address)
                return made
            except OSError as problem:
                made.close()
                error = problem
        raise error

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


def _addresses(host: str, port: int, seconds: float) -> list[Any]:
    """Return what `getaddrinfo` does.

    Raises:
        TimeoutError: if it takes longer. It cannot be ended, and goes on in its thread.
        OSError, UnicodeError: as it does.
    """
    with _lock:
        looking = _looking.get((host, port))
        if looking is None:
            looking = _looking[host, port] = Future()
            # A daemon, as the process must be able to end before the system gives up, after half a minute.
            threading.Thread(
                target=_look_up, args=(host, port, looking), name="look-up", daemon=True
            ).start()
    try:
        return looking.result(seconds)
    except FutureTimeoutError:  # another class before Python 3.11
        raise TimeoutError(f"no address of {host}") from None


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


def _split(url: str) -> tuple[Any, str]:
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
