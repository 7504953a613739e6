"""The interface of transports, which carry the records of a hop.

    KafkaBroker  --- send_hop --->  Transport  --- receive --->  the same broker, and others that share it

Nothing returns directly, not even on the memory transport, so that all modes share one delivery path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from parllel.types import Closeable

# The kind of the records by which agent hosts and the environment side of a run meet.
HOSTS = "hosts"


class Record(NamedTuple):
    """The encoded messages of one environment and kind in one hop.

    Attributes:
        kind: the value of a `MessageType`.
        environment: key of the environment, unique to it.
        content: readable by `read_record`.
    """

    kind: str
    environment: bytes
    content: bytes


class OtherRecord(NamedTuple):
    """A record of another session of the run. `sender` is unique to that session's transport."""

    sender: bytes
    record: Record


class Transport(ABC, Closeable):
    """Carries records from a broker back to the same broker, and to others that share the transport's log.

    Records of one environment and kind arrive in the order they were sent. They may also be lost,
    arrive twice, come from other senders, or be malformed. The broker checks their content.

    `send_hop` and `receive` may run concurrently in two threads, but neither runs twice at a time.

    Attributes:
        max_bytes: maximum size of one record's content.
        partitions: number of partitions over which environments are spread.
        session: unique to this object, if records of other sessions can arrive.
        blocked_s: seconds that calls spent on a failing connection, beyond their time-outs.
    """

    # Defaults of the class, as a user's transport need not call a constructor. `blocked_s` only
    # grows: `Delivery` subtracts two readings, without a lock.
    max_bytes: int = 1 << 26
    partitions: int = 1
    session: bytes = b""
    blocked_s: float = 0.0

    @abstractmethod
    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Send the records of one hop, from any environments, by a deadline on the `time.monotonic` clock.

        An empty list only moves the deadline of the last hop.

        Raises:
            BrokerUnavailableError: if they could not be sent; the broker passes all of them again with
                the next hop.
        """

    @abstractmethod
    def receive(self, timeout_s: float) -> list[Record]:
        """Return the records that have arrived, after waiting up to `timeout_s` for the first.

        Raises:
            BrokerUnavailableError: if no record can arrive any more.
        """

    def reset(self, environment: bytes, lease: int, epoch: int) -> None:
        """Drop an environment's records from before this epoch. Overriding this is optional."""
        return

    def take_others(self) -> list[OtherRecord]:
        """Return the records of the run's other sessions that have arrived, in the order of each session."""
        return []

    def trouble(self) -> str:
        """Return why records may be missing, for error messages; "" if nothing is known."""
        # Called after a time-out, when the caller has no time left: nothing here may wait.
        return ""

    def statistics(self) -> dict[str, int]:
        """Return the transport's counters, which the broker reports next to its own."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release everything the transport holds. Idempotent."""
