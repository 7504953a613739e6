"""A transport within one process.

    any thread  --- append --->  MemoryLog: one queue per reader  --- read --->  the thread in `receive`

One lock guards all queues.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from parllel.distributed.messaging.transport import Record, Transport


class MemoryLog:
    """A log that passes every record to all transports attached to it, like the topics of a Kafka broker."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        # By id, so that the log keeps no transport alive that was dropped without `close`.
        self._readers: dict[int, deque[Record]] = {}

    def attach(self, reader: object) -> None:
        """Queue future records for a reader."""
        with self._arrived:
            self._readers[id(reader)] = deque()

    def detach(self, reader: object) -> None:
        """Drop a reader with its queue."""
        with self._arrived:
            # A thread that waits in `read` is not woken: brokers wait in slices of 50 ms.
            self._readers.pop(id(reader), None)

    def append(self, records: Sequence[Record]) -> None:
        """Add records to the queues of all readers."""
        with self._arrived:
            # Each reader has its own queue, since each broker must see all records, and skip foreign ones.
            for queue in self._readers.values():
                queue.extend(records)
            self._arrived.notify_all()

    def read(self, reader: object, timeout_s: float) -> list[Record]:
        """Return a reader's unread records, after waiting up to `timeout_s` for the first."""
        with self._arrived:
            unread = self._readers.get(id(reader))
            if unread is None:  # closed by another thread in the meantime
                return []
            if not unread and timeout_s > 0:
                self._arrived.wait_for(lambda: unread, timeout_s)
            records = list(unread)
            unread.clear()
            return records


class MemoryTransport(Transport):
    """A transport that delivers records immediately, within this process.

    Args:
        log: a log shared by several transports. Each broker discards the records of other brokers
            when it receives them. If it never receives, they accumulate.
    """

    def __init__(self, log: MemoryLog | None = None) -> None:
        self._log = MemoryLog() if log is None else log
        self._log.attach(self)

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Append records to the log."""
        self._log.append(records)

    def receive(self, timeout_s: float) -> list[Record]:
        """Return all records not received yet."""
        return self._log.read(self, timeout_s)

    def close(self) -> None:
        """Drop unreceived records. Idempotent."""
        self._log.detach(self)
