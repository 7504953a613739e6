"""Addresses a server listens on, and the host names clients may use for it."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
from typing import NamedTuple

from parllel.distributed.web.server_settings import ServerSettings
from parllel.system.limits import limits_explained

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_HOST = re.compile(
    r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9_](?:[a-z0-9._-]{0,252})))(?::([0-9]{1,5}))?\Z"
)


class HostPort(NamedTuple):
    """Host and port of a Host header or an Origin; `port` is None if absent."""

    host: str
    port: int | None


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address (127.0.0.0/8 and ::1)."""
    parsed = as_address(address)
    return parsed is not None and parsed.is_loopback


def network_address(bound: str) -> str | None:
    """Return the address at which other machines reach a bound address, or None for loopback."""
    address = as_address(bound)
    if address is None or address.is_loopback:
        return None
    if not address.is_unspecified:
        return bound
    # Bound to all interfaces: show the one that packets leave by. Connecting a UDP socket only selects a
    # route; nothing is sent to these documentation addresses.
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        if family == socket.AF_INET6 and address.version == 4:
            break
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            found = str(probe.getsockname()[0])
            if not is_loopback(found):
                return found
    return None


def as_address(text: str) -> Address | None:
    """Parse an IP address, unwrapping IPv4-mapped IPv6. Returns None for any other text."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def network_of(client: str) -> str:
    """Return the key by which a client is counted: its IPv4 address, or the /64 prefix of an IPv6 one."""
    # One machine commonly owns a whole /64, and could otherwise appear as 2^64 clients.
    if ":" not in client:
        return client
    address = as_address(client)
    return str(address) if address is None or address.version == 4 else address.exploded[:19]


def parse_host(text: str) -> HostPort | None:
    """Parse `name:port` to lower case. Returns None for any other form."""
    found = _HOST.match(text.lower())
    if found is None or (found[1] is not None and as_address(found[1]) is None):
        return None
    return HostPort(found[1] or found[2].removesuffix("."), int(found[3]) if found[3] else None)


def check_address(settings: ServerSettings) -> None:
    """Check that the address can be listened on, before anything expensive is built for the server.

    Raises:
        OSError: if the address cannot be resolved or bound. The message says what to do.
    """
    # Bound and released: another process may still take the port before the server binds it.
    _bound_socket(settings.host, *_resolve(settings.host, settings.port)).close()


def listening_socket(settings: ServerSettings) -> socket.socket:
    """Return a socket bound to the settings' address, not yet listening.

    Raises:
        ValueError: for an address beyond loopback without a token.
        OSError: if the address cannot be resolved or bound. The message says what to do.
    """
    host, port = settings.host, settings.port
    # Blocks for as long as the resolver takes, so it must not move into the server's loop.
    family, address = _resolve(host, port)
    # The resolved address decides, not the name: a name may resolve to anything.
    if settings.token is None and not is_loopback(address[0]):
        raise ValueError(
            f"{host} can be reached from other machines, so clients need a token. Pass --token-file FILE, "
            "or listen on 127.0.0.1"
        )
    return _bound_socket(host, family, address)


def _bound_socket(
    host: str, family: socket.AddressFamily, address: tuple[str, int]
) -> socket.socket:
    port = address[1]
    with limits_explained(f"a socket for {host}:{port}"):
        # asyncio disables Nagle's algorithm (40 ms per reply) only on sockets whose protocol is TCP, not 0.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Without it the port stays taken (TIME_WAIT) for a minute after a server has closed.
        # In exchange, Linux lets several sockets bind the port until one of them listens: a second
        # server then fails when it is started, not when it is created.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, _bind_message(error, host, port)) from None
    return bound


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise OSError(
            errno.EADDRNOTAVAIL,
            f"{host!r} cannot be resolved to an address ({error}). Pass an address of this machine",
        ) from None
    # Prefer IPv4: every client tries it for `localhost`, and some try nothing else.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address  # type: ignore[return-value]


def _bind_message(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use. Stop the program that listens there, or choose another --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{host}:{port} is reserved for privileged users. Choose a --port from 1024 to 65535"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine. Pass one of its addresses as --host"
    return f"cannot listen on {host}:{port}: {error.strerror}"


class HostNames:
    """Host names and addresses that a server accepts in the Host header.

    This defeats DNS rebinding: a foreign site can make its name resolve to this machine so that its scripts
    become same-origin, but its name remains in the Host header.

    Args:
        settings: `host` and `allowed_hosts` are always accepted. A server on loopback also accepts loopback's
            names and addresses. A server on all addresses accepts any address (rebinding needs a name) and
            the machine's name.
    """

    def __init__(self, settings: ServerSettings) -> None:
        names = {settings.host, *settings.allowed_hosts}
        own = as_address(settings.host)
        self._loopback = own is None or own.is_loopback or own.is_unspecified
        self._any_address = own is not None and own.is_unspecified
        if self._loopback:
            names.add("localhost")
        if self._any_address:
            # Only the name, without asking a resolver, which the network may control.
            names.add(socket.gethostname())
        self._names = {_plain(name) for name in names}

    def __contains__(self, host: str) -> bool:
        address = as_address(host)
        if address is not None and (self._any_address or (self._loopback and address.is_loopback)):
            return True
        return _plain(host) in self._names


def _plain(name: str) -> str:
    bare = name.lower().strip("[]").removesuffix(".")
    address = as_address(bare)
    return bare if address is None else str(address)
