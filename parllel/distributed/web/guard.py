"""Checks that every request must pass: Host, Origin, rate and token."""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import re
import time
from collections import OrderedDict

from parllel.distributed.web.address import HostNames, network_of, parse_host
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.token_cookie import cookie_of
from parllel.distributed.web.web_error import WebError

_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)\Z")
_PORTS = {"http": 80, "https": 443}
_MAX_KNOWN = 64  # accepted Host headers that are remembered
_MAX_CLIENTS = 10_000  # clients whose requests are counted
_CHALLENGE = ((b"www-authenticate", b'Bearer, Basic realm="parllel"'),)
# Without Basic, which would make a browser ask its user for a name and a password.
_NO_FORM = ((b"www-authenticate", b"Bearer"),)


class Guard:
    """Checks of Host, Origin, rate and token, the same for every verb and path.

    Used by the event loop's thread only.

    Args:
        settings: settings of the server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._names = HostNames(settings)
        self._token = None if settings.token is None else settings.token.encode()
        self._cookie = settings.cookie
        self._rate = None if settings.requests_per_s is None else RateLimit(settings.requests_per_s)
        # Accepted Host headers by their exact bytes, so that a client's further requests need no
        # parsing.
        self._known: set[bytes] = set()

    def check(self, headers: dict[bytes, bytes], client: str, needs_token: bool) -> None:
        """Check one request.

        headers: headers keyed by lower-case name.
        needs_token: whether the request needs the token. False for paths that anyone may request,
            such as the health check.

        Raises:
            WebError: 400, 401, 403, 421 or 429, as the reply to send.
        """
        # Host first: until it is known to be ours, Origin cannot be compared with it. The rate comes before
        # the token, so that guessing tokens is limited too.
        host = headers.get(b"host")
        if host is None:
            raise WebError(400, "a request must have a Host header")
        if host not in self._known:
            self._check_host(host)
        if self._rate is not None:
            self._check_rate(self._rate, client)
        if b"origin" in headers:
            _check_origin(headers[b"origin"], host)
        # Browsers send no Origin for an image or a link, but say here which kind of page it is on.
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise WebError(403, "requests from pages of other sites are refused")
        if needs_token and self._token is not None:
            given = headers.get(b"authorization", b"")
            # A header wins over a cookie, so that a program with a wrong token is told so, whatever
            # cookie the browser on its machine holds.
            if self._cookie and not given:
                self._check_cookie(self._token, cookie_of(headers))
            else:
                self._check_token(self._token, given)

    def _check_host(self, host: bytes) -> None:
        parsed = parse_host(host.decode("latin-1"))
        if parsed is None:
            raise WebError(400, "the Host header is not of the form NAME:PORT")
        if parsed.host not in self._names:
            raise WebError(
                421,
                f"this server is not called {parsed.host}; if it is, start it with "
                f"--allow-host {parsed.host}",
            )
        # Bounded, because a known name with any port passes: clients could fill the memory.
        if len(self._known) < _MAX_KNOWN:
            self._known.add(host)

    @staticmethod
    def _check_rate(rate: RateLimit, client: str) -> None:
        wait_s = rate.wait_s(client)
        if wait_s:
            retry = ((b"retry-after", b"%d" % math.ceil(wait_s)),)
            raise WebError(429, "too many requests per second from this client", retry)

    @staticmethod
    def _check_token(token: bytes, given: bytes) -> None:
        scheme, _, value = given.partition(b" ")
        if scheme.lower() == b"basic":
            value = _password(value)
        elif scheme.lower() != b"bearer":
            value = b""
        # Constant time: an early exit would reveal how many leading characters are right.
        if not hmac.compare_digest(value.strip(), token):
            raise WebError(
                401,
                "expected the server's token, as 'Authorization: Bearer TOKEN' or as the password of the URL",
                _CHALLENGE,
            )

    @staticmethod
    def _check_cookie(token: bytes, given: bytes) -> None:
        if not hmac.compare_digest(given, token):
            raise WebError(
                401,
                "expected the server's token: open the address with ?token=... that it printed, or send "
                "'Authorization: Bearer TOKEN'",
                _NO_FORM,
            )


class RateLimit:
    """Token bucket per client address, holding one second's worth of requests and refilled evenly.

    Addresses in the same IPv6 /64, which one machine commonly owns, share a bucket. At most 10,000 buckets
    are kept; the least recently used one is dropped.

    Args:
        per_s: average number of requests per second of one client. One request at a time is always
            allowed.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._size = max(per_s, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Count a request. Returns 0.0, or the seconds to wait if the limit is exceeded."""
        now = time.monotonic()
        key = network_of(client)
        left, since = self._buckets.pop(key, (self._size, now))
        left = min(self._size, left + (now - since) * self._per_s)
        # A refused request costs nothing. Otherwise a client that repeats it at once would never be
        # let in.
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        # Inserted anew, at the end: the first entry is always the least recently used.
        self._buckets[key] = (left if wait_s else left - 1.0, now)
        # The dropped client begins anew with a full bucket: some requests too many are better than
        # memory that grows with the number of addresses.
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return wait_s


def _password(encoded: bytes) -> bytes:
    try:
        return base64.b64decode(encoded.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _check_origin(origin: bytes, host: bytes) -> None:
    """Refuse requests from pages of other origins.

    Compares host and port only: the scheme is unknown here, because a proxy may add TLS.
    """
    # `null`, the origin of sandboxed frames and local files, has no such form and is refused.
    found = _ORIGIN.match(origin.decode("latin-1").lower())
    page = None if found is None else parse_host(found[2])
    own = parse_host(host.decode("latin-1"))
    if found is not None and page is not None and own is not None:
        port = _PORTS[found[1]]
        if (page.host, page.port or port) == (own.host, own.port or port):
            return
    raise WebError(403, "requests from pages of other origins are refused")
