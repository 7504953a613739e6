"""What all edges of a broker share."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import Any

from parllel.distributed.messaging.outbox import Outbox
from parllel.distributed.messaging.place import Place
from parllel.distributed.messaging.record_content import SCHEMA, RecordHead, write_record
from parllel.distributed.messaging.subscription import Subscription
from parllel.distributed.messaging.transport import Record
from parllel.distributed.messaging.watchers import Watchers

# Bytes of a record beside its messages and the names in its head.
_HEAD = 256


class Exchange:
    """Collect the messages of a hop into records.

        Edge.put     --- add --->  outboxes: one for each environment, kind and channel
        outboxes     --- seal -->  records, at the end of the hop or when one is full
        Delivery     takes the records, and hands them to the transport

    Whatever is here, in an edge or in a place is read and changed by those alone who hold the lock.

    Args:
        run: the name of the run.
        encoded: whether messages become records; otherwise they arrive at once, as references.
        capacity: messages of one edge that may wait for their consumer.
        max_bytes: of a record.

    Attributes:
        lock: held for short times alone, never while waiting for anything.
        session: 32 random digits, by which a broker knows its own records.
        outgoing: outboxes that hold messages.
        totals: of all epochs that are over: messages "published", "consumed" and so on.
        duplicates: messages that came, or were sent, twice.
        latest_channels: names of channels of which the latest message alone is kept.
        subscriptions: to channels, by their names.
    """

    def __init__(self, run: str, *, encoded: bool, capacity: int, max_bytes: int) -> None:
        self.run = run
        self.encoded = encoded
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.session = uuid.uuid4().hex
        self.lock = threading.RLock()
        self.outgoing: list[Outbox] = []
        self.watchers = Watchers()
        self.totals: Counter[str] = Counter()
        self.duplicates = 0
        self.latest_channels: set[str] = set()
        self.subscriptions: dict[str, list[Subscription]] = {}
        self._sealed: list[Record] = []

    def outbox(self, place: Place, kind: str, channel: str | None) -> Outbox:
        """Return a new outbox."""
        names = len(self.run) + len(place.key) + 4 * len(channel or "")
        return Outbox(place, kind, channel, self.max_bytes - _HEAD - names)

    def add(self, outbox: Outbox, way: tuple[Any, ...], payload: Any, nbytes: int) -> None:
        """Put a message into an outbox."""
        if not outbox.payloads:
            self.outgoing.append(outbox)
        elif outbox.nbytes + nbytes > outbox.most:
            self._seal(outbox)
        outbox.ways += way
        outbox.payloads.append(payload)
        outbox.nbytes += nbytes

    def _seal(self, outbox: Outbox) -> None:
        place, kind = outbox.place, outbox.kind
        head = RecordHead(
            *(SCHEMA, self.run, self.session, place.environment, place.incarnation, place.epoch),
            *(place.step, kind, outbox.channel),
        )
        content = write_record(head, outbox.ways, outbox.payloads)
        self._sealed.append(Record(kind, place.key, content))
        outbox.clear()

    def take_hop(self) -> list[Record]:
        """Return all messages that were added, as records."""
        with self.lock:
            for outbox in self.outgoing:
                if outbox.payloads:
                    self._seal(outbox)
            self.outgoing.clear()
            records, self._sealed = self._sealed, []
            return records
