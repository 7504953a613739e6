"""Limits and time-outs of a web server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from parllel.distributed.web.token_file import check_token
from parllel.distributed.wire.limits import Limits

_TIMES = ("header_s", "body_s", "idle_s", "write_s", "end_s", "ping_s")
_COUNTS = (
    "max_body_bytes",
    "max_message_bytes",
    "max_connections",
    "max_sockets",
    "handler_threads",
    "waiting_requests",
)


# Frozen: the loop's thread, the handlers' threads and the owner read it without a lock.
@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Limits and time-outs of a web server. Times are in seconds.

    Attributes:
        host: address or name to listen on. Beyond loopback, a token is required.
        port: port to listen on. 0 picks a free port.
        token: token that clients must send as Bearer token or Basic password. None admits every
            client.
        cookie: whether a browser that opens a page with `?token=...` gets the token as a cookie, accepted in
            place of a Bearer token. Its name contains the port, as all ports of a host share cookies.
        allowed_hosts: names accepted in the Host header, besides the server's own address.
        max_body_bytes: maximum size of a request's body.
        max_message_bytes: maximum size of a WebSocket message.
        limits: limits on JSON in a request.
        header_s: time limit from the opening of the connection, or the first byte of a request, to
            the end of the headers.
        body_s: time limit from the end of the headers to the end of the body.
        idle_s: time limit between two requests on a connection.
        write_s: time limit for a client to read a reply.
        end_s: time limit for requests in progress to finish when the server shuts down.
        ping_s: time between pings on a WebSocket, and time limit for the answer to a ping.
        max_connections: maximum number of open connections. Beyond it, a connection of the client
            with the most connections is closed: the one that has been idle longest, or else the one
            that has been sending a request longest.
        max_sockets: maximum number of open WebSockets. Beyond it, a handshake gets a 503.
        requests_per_s: maximum number of requests per second from one client address, averaged over
            a second. None means no limit.
        handler_threads: maximum number of requests handled at the same time.
        waiting_requests: maximum number of requests waiting for a thread. Beyond it, a request gets
            a 503.
        access_log: whether the logger `parllel.distributed.web.access` logs each request.

    Raises:
        ValueError, TypeError: for an invalid setting, which the message names.
    """

    host: str = "127.0.0.1"
    port: int = 0
    # `repr=False` marks what must not be shown: `public` leaves out the same fields.
    token: str | None = field(default=None, repr=False)
    cookie: bool = False
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 1 << 20
    max_message_bytes: int = 1 << 16
    limits: Limits = field(default_factory=Limits)
    header_s: float = 10.0
    body_s: float = 10.0
    # Above the 60 s after which many proxies and clients close. If the server closes first, a
    # request that is on its way is lost.
    idle_s: float = 75.0
    write_s: float = 60.0
    end_s: float = 10.0
    ping_s: float = 20.0
    max_connections: int = 256
    max_sockets: int = 64
    requests_per_s: float | None = None
    handler_threads: int = 64
    waiting_requests: int = 64
    access_log: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not self.host:
            raise TypeError(f"host: expected an address or a name, got {self.host!r}")
        if not _is_int(self.port) or not 0 <= self.port <= 65535:
            raise ValueError(f"port: expected an int from 0 to 65535, got {self.port!r}")
        if self.token is not None:
            check_token(self.token, "token")
        if isinstance(self.allowed_hosts, str):
            raise TypeError(
                f"allowed_hosts: expected a sequence of names, got {self.allowed_hosts!r}"
            )
        for name in _TIMES:
            value = getattr(self, name)
            # Finite: `WebServer.close` passes `end_s` to `Thread.join`, which raises OverflowError
            # for infinity.
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name}: expected seconds above 0, got {value!r}")
        for name in _COUNTS:
            value = getattr(self, name)
            if not _is_int(value) or value < 1:
                raise ValueError(f"{name}: expected an int of at least 1, got {value!r}")
        rate = self.requests_per_s
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"requests_per_s: expected a number above 0 or None, got {rate!r}")

    def public(self) -> dict[str, object]:
        """Return all settings except the token, for a log or a run's record."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.repr}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
