"""Records that stay in this process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from parllel.distributed.messaging.transport import Record, Transport


class MemoryLog:
    """Show every record to all transports that are made with it, as the topics of a Kafka broker do."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._readers: dict[int, deque[Record]] = {}

    def attach(self, reader: object) -> None:
        """Keep what is sent from now on for a reader."""
        with self._arrived:
            self._readers[id(reader)] = deque()

    def detach(self, reader: object) -> None:
        """Keep nothing more for a reader."""
        with self._arrived:
            self._readers.pop(id(reader), None)

    def append(self, records: Sequence[Record]) -> None:
        """Show records to all readers."""
        with self._arrived:
            for records_of_one in self._readers.values():
                records_of_one.extend(records)
            self._arrived.notify_all()

    def read(self, reader: object, timeout_s: float) -> list[Record]:
        """Return what a reader has not seen yet; wait for it for at most `timeout_s`."""
        with self._arrived:
            unread = self._readers.get(id(reader))
            if unread is None:
                return []
            if not unread and timeout_s > 0:
                self._arrived.wait_for(lambda: unread, timeout_s)
            records = list(unread)
            unread.clear()
            return records


class MemoryTransport(Transport):
    """Hand records straight back.

    Args:
        log: what several transports share, whose brokers then see each other's records, and drop them. A
            transport that nothing is received from keeps all of them.
    """

    def __init__(self, log: MemoryLog | None = None) -> None:
        self._log = MemoryLog() if log is None else log
        self._log.attach(self)

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Put records where `receive` finds them."""
        self._log.append(records)

    def receive(self, timeout_s: float) -> list[Record]:
        """Return all records that were sent and not received yet."""
        return self._log.read(self, timeout_s)

    def close(self) -> None:
        """Drop what was not received."""
        self._log.detach(self)
