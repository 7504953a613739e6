"""Messages that wait for the end of their hop."""

from __future__ import annotations

from typing import Any

from parllel.messaging.place import Place


class Outbox:
    """The messages of one environment and kind that were not sent yet.

    Attributes:
        items: for each message sender, recipient, sequence number, time and payload, one after the other, as
            they go into the record.
        nbytes: at least as many as the items will have.
        most: bytes that the items of one record may have.
    """

    __slots__ = ("channel", "items", "kind", "most", "nbytes", "place")

    def __init__(self, place: Place, kind: str, channel: str | None, most: int) -> None:
        self.most = most
        self.place = place
        self.kind = kind
        self.channel = channel
        self.items: list[Any] = []
        self.nbytes = 0
