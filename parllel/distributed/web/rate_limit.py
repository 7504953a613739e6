"""How many requests a client may make in a second."""

from __future__ import annotations

import time
from collections import OrderedDict

from parllel.distributed.web.address import as_address

_MOST_CLIENTS = 10_000


class RateLimit:
    """A bucket of tokens for each client address: one second's worth at most, refilled evenly.

    The addresses of an IPv6 network of 64 bits, which one machine commonly has for itself, share a bucket. At
    most 10,000 buckets are kept; the one that was used least recently is dropped.

    Args:
        per_s: requests of a client, on average; at least one is always allowed at once.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._size = max(per_s, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Count a request; return 0.0, or how long the client has to wait if it is one too many."""
        now = time.monotonic()
        key = _network(client) if ":" in client else client
        left, since = self._buckets.pop(key, (self._size, now))
        left = min(self._size, left + (now - since) * self._per_s)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        self._buckets[key] = (left if wait_s else left - 1.0, now)
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return wait_s


def _network(client: str) -> str:
    address = as_address(client)
    return str(address) if address is None or address.version == 4 else address.exploded[:19]
