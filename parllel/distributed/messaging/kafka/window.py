"""The records in flight: sent, and not yet back.

    send_hop  --- add --->  _sent, and one queue per lane  --- arrive --->  ready, in the order of sending
                                       |
                                       +--- missing --->  sent again by a new connection

The transport holds its lock around every call.
"""

from __future__ import annotations

from collections import deque

from parllel.distributed.messaging.transport import HOSTS, Record

Lane = tuple[str, int]


class _Sent:
    """A record in flight. `arrived` is True while it waits for earlier records of its lane."""

    __slots__ = ("arrived", "lane", "number", "record")

    def __init__(self, number: int, record: Record, lane: deque[_Sent]) -> None:
        self.number, self.record, self.lane = number, record, lane
        self.arrived = False


class ReorderWindow:
    """Restores the order in which records were sent, and returns each record once.

    After records were sent again, a broker's log may hold them twice and in a different order. A lane is the
    unit that a broker keeps in order: one partition of one topic.

    Attributes:
        repeated: number of records that arrived again.
        forged: number of records that carry the number of a record in flight but different content.
    """

    def __init__(self) -> None:
        self.repeated = self.forged = 0
        self._ready: list[Record] = []
        self._sent: dict[int, _Sent] = {}
        self._lanes: dict[Lane, deque[_Sent]] = {}
        self._forgotten: dict[bytes, int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._sent)

    def count_of_environments(self) -> int:
        """Return the number of records in flight that belong to an environment, not to hosts."""
        # Called without the transport's lock, and a list is made in one go.
        return sum(sent.record.kind != HOSTS for sent in list(self._sent.values()))

    def add(self, record: Record, lane: Lane) -> int:
        """Register a record to be sent, and return its number."""
        self._number += 1
        waiting = self._lanes.setdefault(lane, deque())
        sent = self._sent[self._number] = _Sent(self._number, record, waiting)
        waiting.append(sent)
        return self._number

    def drop(self, number: int) -> Record | None:
        """Give up a record and return it; None if it has arrived."""
        sent = self._sent.pop(number, None)
        if sent is None:
            return None
        sent.lane.remove(sent)
        # Records after it may have arrived, and waited for this one only.
        self._release(sent.lane)
        return sent.record

    def forget(self, environment: bytes) -> None:
        """Mark an environment's records up to now as no longer needed."""
        # Only marked: a reset is frequent and must not search the window. `prune` does, once per hop.
        if self._sent:
            self._forgotten[environment] = self._number

    def prune(self) -> None:
        """Give up records that are no longer needed."""
        if not self._forgotten:
            return
        forgotten, self._forgotten = self._forgotten, {}
        for sent in list(self._sent.values()):
            if sent.number <= forgotten.get(sent.record.environment, 0):
                self.drop(sent.number)

    def arrive(self, number: int, content: bytes) -> None:
        """Register a record that has arrived.

        Anyone with access to a topic can read a record's header and forge the next number, so a record
        counts as arrived only if its content is what was sent.
        """
        sent = self._sent.get(number)
        if sent is None or sent.arrived:
            self.repeated += 1
        elif content != sent.record.content:
            self.forged += 1
        else:
            sent.arrived = True
            self._release(sent.lane)

    def take(self) -> list[Record]:
        """Return the records that have come into order since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def _release(self, lane: deque[_Sent]) -> None:
        # Records after a lost one wait until it was sent again, or they would overtake it.
        while lane and lane[0].arrived:
            first = lane.popleft()
            del self._sent[first.number]
            self._ready.append(first.record)

    def missing(self) -> list[tuple[int, Record]]:
        """Return number and record of each record that has not arrived, in the order sent."""
        return [(sent.number, sent.record) for sent in self._sent.values() if not sent.arrived]
