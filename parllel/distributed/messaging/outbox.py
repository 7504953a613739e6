"""Messages that wait for the end of their hop."""

from __future__ import annotations

from typing import Any

from parllel.distributed.messaging.place import Place


class Outbox:
    """The messages of one environment and kind that were not sent yet.

    Attributes:
        ways: of each message sender, recipient, sequence number and time, one after the other.
        payloads: of each message, encoded.
        nbytes: at least as many as both will have.
        most: bytes that they may have in one record.
    """

    __slots__ = ("channel", "kind", "most", "nbytes", "payloads", "place", "ways")

    def __init__(self, place: Place, kind: str, channel: str | None, most: int) -> None:
        self.place = place
        self.kind = kind
        self.channel = channel
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self.ways: list[Any] = []
        self.payloads: list[Any] = []
        self.nbytes = 0
