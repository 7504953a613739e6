"""What a server allows, and how long it waits."""

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


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What a server allows, and how long it waits.

    Attributes:
        host: address or name to listen on; beyond loopback, a token is required.
        port: 0 takes a free one.
        token: what clients send as Bearer, or as the password of Basic; None asks for nothing.
        cookie: whether a browser that opens a page with `?token=...` gets the token as a cookie, which is
            then as good as a Bearer; its name has the port, as all ports of a host share their cookies.
        allowed_hosts: names by which clients may call this server, beside its own address.
        max_body_bytes: of a request.
        max_message_bytes: of a WebSocket's message.
        limits: of JSON in a request.
        header_s: from the first byte of a request, or the connection, to the end of the headers.
        body_s: from there to the end of the body.
        idle_s: between two requests of a connection.
        write_s: for a client to read a reply.
        end_s: for running requests, once the server is to end.
        ping_s: between pings of a WebSocket, and for the answer to one.
        max_connections: at the same time; beyond them, the client that has the most loses the one that has
            been idle, or else sending a request, for longest.
        max_sockets: WebSockets among them; beyond them the reply is 503.
        requests_per_s: of one client address, on average over a second; None sets no limit.
        handler_threads: requests that are handled at the same time.
        waiting_requests: that wait for a thread; beyond them the reply is 503.
        access_log: whether each request is logged, by the logger `parllel.distributed.web.access`.

    Raises:
        ValueError, TypeError: name the setting that is wrong.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    cookie: bool = False
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 1 << 20
    max_message_bytes: int = 1 << 16
    limits: Limits = field(default_factory=Limits)
    header_s: float = 10.0
    body_s: float = 10.0
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
            raise TypeError(f"allowed_hosts: expected several names, got {self.allowed_hosts!r}")
        for name in _TIMES:
            value = getattr(self, name)
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
        """Return all settings but the token, for a log or a record of the run."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.repr}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
