"""Where a server listens, and by which names it may be called."""

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
    """What a Host header or the end of an Origin says; `port` is None if it has none."""

    host: str
    port: int | None


def is_loopback(address: str) -> bool:
    """Return whether an address is reached from this machine alone: 127.0.0.0/8 and ::1."""
    parsed = as_address(address)
    return parsed is not None and parsed.is_loopback


def network_address(bound: str) -> str | None:
    """Return an address at which other machines reach what is bound to one; None if there is none."""
    address = as_address(bound)
    if address is None or address.is_loopback:
        return None
    if not address.is_unspecified:
        return bound
    # That of the interface by which packets leave. None is sent: connecting UDP only chooses a route.
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
    """Return an IP address, an IPv4 one inside IPv6 as itself, or None if the text is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def network_of(client: str) -> str:
    """Return what a client has for itself: its address, or the first 64 bits of one of IPv6."""
    if ":" not in client:
        return client
    address = as_address(client)
    return str(address) if address is None or address.version == 4 else address.exploded[:19]


def parse_host(text: str) -> HostPort | None:
    """Return the parts of `name:port`, lower-case, or None if it is not of that form."""
    found = _HOST.match(text.lower())
    if found is None or (found[1] is not None and as_address(found[1]) is None):
        return None
    return HostPort(found[1] or found[2].removesuffix("."), int(found[3]) if found[3] else None)


def check_address(settings: ServerSettings) -> None:
    """Raise as a server would if its address cannot be listened on, before anything is made for it.

    Raises:
        OSError: if it cannot be resolved or bound; the message says what to do.
    """
    _bound_socket(settings.host, *_resolve(settings.host, settings.port)).close()


def listening_socket(settings: ServerSettings) -> socket.socket:
    """Return a socket that is bound to the settings' address; it is not listening yet.

    Raises:
        ValueError: if the address is beyond loopback and there is no token.
        OSError: if it cannot be resolved or bound; the message says what to do.
    """
    host, port = settings.host, settings.port
    family, address = _resolve(host, port)
    if settings.token is None and not is_loopback(address[0]):
        raise ValueError(
            f"{host} can be reached from other machines, so clients must have a token: give one by "
            "--token-file FILE, or listen on 127.0.0.1"
        )
    return _bound_socket(host, family, address)


def _bound_socket(
    host: str, family: socket.AddressFamily, address: tuple[str, int]
) -> socket.socket:
    port = address[1]
    with limits_explained(f"a socket for {host}:{port}"):
        # By its number: asyncio switches Nagle's algorithm off (40 ms per reply) for sockets that name TCP.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Or a server could not be started again for a minute after it has ended.
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
            f"{host!r} cannot be resolved to an address ({error}); give an address of this machine",
        ) from None
    # Clients try IPv4 of `localhost` too, and some try it alone.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address  # type: ignore[return-value]


def _bind_message(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use; end what listens there, or choose another --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{host}:{port} is for privileged users; choose a --port from 1024 to 65535"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; give one of its own by --host"
    return f"{host}:{port} cannot be listened on: {error.strerror}"


class HostNames:
    """The names by which clients may call a server.

    A page of another site can be made to resolve to this machine, and its scripts would then be same-origin
    (DNS rebinding); but its name stays in the Host header.

    Args:
        settings: a server of loopback is called by loopback's names and addresses; one of all addresses by
            any address, as it takes a name to rebind, and by the machine's name; each by `host` and
            `allowed_hosts`.
    """

    def __init__(self, settings: ServerSettings) -> None:
        names = {settings.host, *settings.allowed_hosts}
        own = as_address(settings.host)
        self._loopback = own is None or own.is_loopback or own.is_unspecified
        self._any_address = own is not None and own.is_unspecified
        if self._loopback:
            names.add("localhost")
        if self._any_address:
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
