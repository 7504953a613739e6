"""A transport with artificial latency."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from parllel.distributed.messaging.transport import Record, Transport


class DelayedTransport(Transport):
    """Delays every record by a fixed time, as a network would.

    Args:
        inner: the transport that then carries the records.
        delay_s: delay in seconds.
    """

    def __init__(self, inner: Transport, delay_s: float) -> None:
        self.inner = inner
        self.delay_s = delay_s
        self.max_bytes = inner.max_bytes
        # The sending thread appends, and the receiving thread pops; there is one of each at a time.
        self._held: deque[tuple[float, list[Record], float]] = deque()

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Queue records until their delay has passed."""
        self._held.append((time.monotonic() + self.delay_s, list(records), deadline))

    def receive(self, timeout_s: float) -> list[Record]:
        """Return records that were delayed long enough, after waiting up to `timeout_s` for the first."""
        give_up = time.monotonic() + timeout_s
        while True:
            self._send_due()
            left = give_up - time.monotonic()
            due_in = self._held[0][0] - time.monotonic() if self._held else left
            # There is no extra thread: the receiver wakes when the next hop is due, and sends it.
            records = self.inner.receive(max(0.0, min(left, due_in)))
            if records or left <= 0:
                return records

    def _send_due(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            # Called by the thread that receives, so the inner `send_hop` runs once at a time, too.
            _, records, deadline = self._held.popleft()
            # The caller's deadline allows for sending only, so the delay is added to it.
            self.inner.send_hop(records, deadline + self.delay_s)

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
        self._held.clear()
        self.inner.close()
