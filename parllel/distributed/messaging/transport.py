"""What carries the messages of a hop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from parllel.types import Closeable


class Record(NamedTuple):
    """The messages of one environment and kind in one hop, as bytes.

    Attributes:
        kind: the value of a `MessageType`.
        environment: one key for each environment, and no two have the same.
        content: for `read_record`.
    """

    kind: str
    environment: bytes
    content: bytes


class Transport(ABC, Closeable):
    """Carry records from a broker back to the same broker, and to those of others that share it.

    What comes of records of one environment and kind comes in the order in which they were sent. Records may
    come twice, come from others, and be anything: the broker sorts them by what their content says.

    `send_hop` and `receive` may run at the same time, in two threads; each runs once at a time.

    Attributes:
        max_bytes: most bytes that the content of one record may have.
        blocked_s: seconds that calls have spent on a connection that is in trouble, beyond their time-outs.
    """

    max_bytes: int = 1 << 26
    blocked_s: float = 0.0

    @abstractmethod
    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Send records, of one hop and any environments, by a time of `time.monotonic`.

        Without records, the deadline of the last hop is moved.

        Raises:
            BrokerUnavailableError: if they could not be sent; the broker gives all of them again with the
                next hop.
        """

    @abstractmethod
    def receive(self, timeout_s: float) -> list[Record]:
        """Return what has come; if nothing has, wait for at most `timeout_s`, and return what came then.

        Raises:
            BrokerUnavailableError: if nothing can come any more.
        """

    def reset(self, environment: bytes, lease: int, epoch: int) -> None:
        """Note that no record of an environment is of use that was sent before this epoch."""
        return

    def trouble(self) -> str:
        """Return why what was sent may not have come, "" if nothing is known; part of messages of errors."""
        return ""

    def statistics(self) -> dict[str, int]:
        """Return counts of its own; the broker reports them beside its own."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Give up everything that it holds."""
