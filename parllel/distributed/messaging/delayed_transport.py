"""Records that arrive late."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from parllel.distributed.messaging.transport import Record, Transport


class DelayedTransport(Transport):
    """Hold every record back for a while, as a network does.

    Args:
        inner: what carries the records then.
        delay_s: for how long they are held back, in seconds.
    """

    def __init__(self, inner: Transport, delay_s: float) -> None:
        self.inner = inner
        self.delay_s = delay_s
        self.max_bytes = inner.max_bytes
        self._held: deque[tuple[float, list[Record], float]] = deque()

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Hold records back."""
        self._held.append((time.monotonic() + self.delay_s, list(records), deadline))

    def receive(self, timeout_s: float) -> list[Record]:
        """Return what has been held back for long enough."""
        give_up = time.monotonic() + timeout_s
        while True:
            self._send_due()
            left = give_up - time.monotonic()
            due_in = self._held[0][0] - time.monotonic() if self._held else left
            records = self.inner.receive(max(0.0, min(left, due_in)))
            if records or left <= 0:
                return records

    def _send_due(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            _, records, deadline = self._held.popleft()
            self.inner.send_hop(records, deadline + self.delay_s)

    def reset(self, environment: bytes, lease: int, epoch: int) -> None:
        """Pass it on."""
        self.inner.reset(environment, lease, epoch)

    def trouble(self) -> str:
        """Return that of the other transport."""
        return self.inner.trouble()

    def statistics(self) -> dict[str, int]:
        """Return those of the other transport."""
        return self.inner.statistics()

    def close(self) -> None:
        """Drop what is held back, and close the other transport."""
        self._held.clear()
        self.inner.close()
