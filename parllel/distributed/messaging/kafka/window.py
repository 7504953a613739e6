"""The records that were sent and have not come back."""

from __future__ import annotations

from collections import deque

from parllel.distributed.messaging.transport import Record

Lane = tuple[str, int]


class _Sent:
    """A record, the records of its lane, and whether it came before its turn."""

    __slots__ = ("arrived", "lane", "number", "record")

    def __init__(self, number: int, record: Record, lane: deque[_Sent]) -> None:
        self.number, self.record, self.lane = number, record, lane
        self.arrived = False


class ReorderWindow:
    """Hand out what comes in the order in which it was sent, and each record once.

    The log of a broker may hold a record twice, and in another order than that of sending, once records were
    sent again. A lane is what a broker keeps in order: one partition of one topic.

    Attributes:
        repeated: records that came once more.
        forged: records with the number of one that was sent, and other content.
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

    def add(self, record: Record, lane: Lane) -> int:
        """Take note of a record to be sent, and return its number."""
        self._number += 1
        waiting = self._lanes.setdefault(lane, deque())
        sent = self._sent[self._number] = _Sent(self._number, record, waiting)
        waiting.append(sent)
        return self._number

    def drop(self, number: int) -> Record | None:
        """Give up a record, and return it; None if it has come."""
        sent = self._sent.pop(number, None)
        if sent is None:
            return None
        sent.lane.remove(sent)
        self._release(sent.lane)
        return sent.record

    def forget(self, environment: bytes) -> None:
        """Note that what an environment has sent until now is of no use any more."""
        if self._sent:
            self._forgotten[environment] = self._number

    def prune(self) -> None:
        """Give up what is of no use."""
        if not self._forgotten:
            return
        forgotten, self._forgotten = self._forgotten, {}
        for sent in list(self._sent.values()):
            if sent.number <= forgotten.get(sent.record.environment, 0):
                self.drop(sent.number)

    def arrive(self, number: int, content: bytes) -> None:
        """Take note of a record that has come, whether it was missing or not.

        Whoever may write to a topic can read the head of a record there, and write the next number himself.
        So a record has arrived only if it holds what was sent.
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
        """Return the records whose turn has come since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def _release(self, lane: deque[_Sent]) -> None:
        # An earlier one may be lost, to be sent again: those after it wait, or they would overtake it.
        while lane and lane[0].arrived:
            first = lane.popleft()
            del self._sent[first.number]
            self._ready.append(first.record)

    def missing(self) -> list[tuple[int, Record]]:
        """Return number and record of each that has not arrived, in the order of sending."""
        return [(sent.number, sent.record) for sent in self._sent.values() if not sent.arrived]
