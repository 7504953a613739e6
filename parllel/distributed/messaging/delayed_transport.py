"""A transport with artificial latency."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from parllel.distributed.messaging.transport import Record, Transport


class DelayedTransport(Transport):
    """Transport that delays every record by a fixed time, like a network.

    Args:
        inner: the transport that then carries the records.
        delay_s: delay in seconds.
    """

    def __init__(self, inner: Transport, delay_s: float) -> None:
        self.inner = inner
        self.delay_s = delay_s
        self.max_bytes = inner.max_bytes
        # The sending thread appends, and the receiving thread pops; there is one of each at a time. `close`
        # replaces it, so that the receiving thread may pop what it has looked at.
        self._held: deque[tuple[float, list[Record], float]] = deque()

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Queue records until their delay has passed."""
        self._held.append((time.monotonic() + self.delay_s, list(records), deadline))

    def receive(self, timeout_s: float) -> list[Record]:
        """Return records whose delay has passed, after waiting up to `timeout_s` for the first."""
        give_up = time.monotonic() + timeout_s
        while True:
            held = self._held
            self._send_due(held)
            left = give_up - time.monotonic()
            due_in = held[0][0] - time.monotonic() if held else left
            # There is no extra thread: the receiver wakes when the next hop is due, and sends it.
            records = self.inner.receive(max(0.0, min(left, due_in)))
            if records or left <= 0:
                return records

    def _send_due(self, held: deque[tuple[float, list[Record], float]]) -> None:
        while held and held[0][0] <= time.monotonic():
            # Called by the thread that receives, so the inner `send_hop` runs once at a time, too.
            _, records, deadline = held[0]
            # The caller's deadline allows for sending only, so the delay is added to it.
            self.inner.send_hop(records, deadline + self.delay_s)
            # After it was sent: a hop that fails is sent again by the next `receive`.
            held.popleft()

    def reset(self, environment: bytes, lease: int, epoch: int) -> None:
        """Forward to the inner transport."""
        self.inner.reset(environment, lease, epoch)

    def trouble(self) -> str:
        """Return the inner transport's trouble."""
        return self.inner.trouble()

    def statistics(self) -> dict[str, int]:
        """Return the inner transport's counters."""
        return self.inner.statistics()

    def close(self) -> None:
        """Drop delayed records, and close the inner transport."""
        self._held = deque()
        self.inner.close()
