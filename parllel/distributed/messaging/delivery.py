"""Passing records through a transport, and waiting for messages to arrive.

    a thread that flushes    --- send_hop -->  transport      one thread at a time (_sending)
    a thread that waits      <--- receive ---  transport      one thread at a time (_receiving)
                             --- arrive --->   the channels      with the exchange's lock

The message that a thread waits for may be received by another thread, so a waiting thread checks again each
time it acquires `_receiving`, and waits in short slices. The exchange's lock is acquired inside the other
two, never around them, so no thread holds it while the transport blocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    MessagingError,
    MissingMessageError,
    SequenceGapError,
)
from parllel.distributed.messaging.exchange import Exchange
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.record_content import RecordHead, open_record
from parllel.distributed.messaging.transport import HOSTS, Record, Transport
from parllel.errors import ClosedError

# Longest slice for which a waiting thread keeps others from receiving.
_SLICE_S = 0.05
# A turn that takes longer, even on a busy machine, means the process was stopped: by SIGSTOP or a debugger.
_MAX_TURN_S = 1.0


class Link(Protocol):
    """What a delivery needs of the other processes that run agents of the environments."""

    def take(self) -> None:
        """Deliver the records of other sessions that have arrived."""

    def explain(self, channel: Channel, error: MissingMessageError) -> MissingMessageError:
        """Return the error for an overdue message, with the host of its sender."""


class Delivery:
    """Sends the records of the exchange, and passes arriving messages to their channels.

    Records are counted and dropped if they are malformed, duplicates, from another run or broker,
    or from an earlier epoch.

    Args:
        namespaces: the broker's namespaces, keyed by environment id.

    Attributes:
        link: the other processes that run agents; None if there are none.
        stale: number of messages of earlier epochs or leases.
        foreign: number of records that are malformed or from other senders.
        sent_records, sent_bytes, received_records: traffic through the transport.
    """

    def __init__(
        self,
        exchange: Exchange,
        transport: Transport,
        namespaces: dict[str, Namespace],
        timeout_s: float,
    ) -> None:
        self._exchange = exchange
        self._transport = transport
        self._namespaces = namespaces
        self._timeout_s = timeout_s
        # Two locks, so that one thread can send while another waits for records.
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        # Records of a hop that could not be sent, in order. Guarded by `_sending`.
        self._unsent: list[Record] = []
        self._closed = False
        self.link: Link | None = None
        self.stale = self.foreign = 0
        self.sent_records = self.sent_bytes = self.received_records = 0

    def deadline(self, deadline: float | None) -> float:
        """Return `deadline`, or the time at which the broker's time-out ends if it is None."""
        return time.monotonic() + self._timeout_s if deadline is None else deadline

    def check_open(self) -> None:
        """Raise ClosedError once closed."""
        if self._closed:
            raise ClosedError("KafkaBroker: used after it was closed")

    def flush(self, deadline: float | None = None) -> None:
        """Send the current hop, and deliver what has arrived.

        Raises:
            BrokerUnavailableError: if the hop could not be sent; the next flush sends it again.
        """
        # Without the lock: an entry that another thread adds now belongs to that thread's own flush.
        if self._exchange.outgoing or self._unsent:
            deadline = self.deadline(deadline)
            with self._sending:
                self.check_open()
                records = self._unsent + self._exchange.take_hop()
                # Kept until sending succeeded. A record may then be sent twice, which its sequence numbers
                # reveal; dropping it would be a gap that only a reset repairs.
                self._unsent = records
                self._transport.send_hop(records, deadline)
                self._unsent = []
                self.sent_records += len(records)
                self.sent_bytes += sum(len(record.content) for record in records)
        if self._exchange.encoded:
            self.receive(0.0)

    def send(self, record: Record) -> None:
        """Send a record that belongs to no environment."""
        with self._sending:
            self.check_open()
            self._transport.send_hop([record], self.deadline(None))

    def await_messages(self, channels: Sequence[Channel], deadline: float | None) -> None:
        """Flush, and receive until each channel has its message of the step.

        Messages of earlier steps are dropped.

        Raises:
            MissingMessageError: if a message has not arrived by the deadline. Names the first
                missing one.
            SequenceGapError, BrokerUnavailableError, BrokerRefusedError: as in `wait_until`.
        """
        missing = list(channels)

        def ready() -> bool:
            missing[:] = _unready(missing)
            return not missing

        if not self.wait_until(ready, missing, self.deadline(deadline)):
            others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise self.overdue(missing[0], f"the deadline has passed{others}")

    def wait_until(
        self, ready: Callable[[], bool], channels: Sequence[Channel], deadline: float
    ) -> bool:
        """Flush and receive until `ready` returns True. Returns False at the deadline.

        Time during which this process was suspended does not count.

        channels: the channels that must receive a message. `ready` may remove some of them.

        Raises:
            SequenceGapError: if a message of one of the channels was lost.
            BrokerUnavailableError, BrokerRefusedError: if the transport fails. Names the first
                channel.
        """
        try:
            while True:
                turn = self._start_turn()
                self.flush(deadline)
                with self._exchange.lock:
                    # Before the faults: a loss elsewhere in the environment does not matter to this caller.
                    if ready():
                        return True
                    for channel in channels:
                        if channel.lease.fault is not None:
                            raise channel.lease.fault
                self.check_open()
                left = deadline - time.monotonic()
                if left <= 0 and not self._was_stopped(turn):
                    return False
                # In slices, so that other waiting threads get their turn to receive and to check.
                self.receive(max(0.0, min(left, _SLICE_S)), ready)
                if self._was_stopped(turn):
                    # The time left when the process was stopped is still left.
                    deadline += time.monotonic() - turn[0]
                    with self._sending:  # another thread may be sending
                        self._transport.send_hop((), deadline)
        except (BrokerUnavailableError, BrokerRefusedError) as error:
            raise _while_waiting(error, channels) from error

    def _start_turn(self) -> tuple[float, float]:
        return time.monotonic(), self._transport.blocked_s

    def _was_stopped(self, turn: tuple[float, float]) -> bool:
        """Check whether a turn of waiting took longer than it can in a running process."""
        started, blocked_s = turn
        # Replacing a connection may take longer than a turn; the transport counts that in `blocked_s`.
        passed_s = time.monotonic() - started - (self._transport.blocked_s - blocked_s)
        return passed_s > _MAX_TURN_S

    def receive(self, timeout_s: float, ready: Callable[[], bool] | None = None) -> None:
        """Deliver the records that have arrived, after waiting up to `timeout_s` for the first.

        ready: returns True if there is nothing to wait for.
        """
        # If another thread is receiving, it delivers this thread's messages, too.
        if not self._receiving.acquire(timeout=timeout_s):
            return
        try:
            if ready is not None:
                # While this thread waited for `_receiving`, its holder may have delivered the message.
                with self._exchange.lock:
                    if ready():
                        return
            if self._exchange.encoded:
                records = self._transport.receive(timeout_s)
            else:
                # References bypass the transport: another thread's `put` delivers them at once.
                time.sleep(min(timeout_s, 0.001))
                records = []
            # The lock is acquired once for all records, rather than for each of many small ones.
            if records:
                with self._exchange.lock:
                    for record in records:
                        self._deliver(record)
                self.received_records += len(records)
        finally:
            self._receiving.release()
        if self.link is not None:
            self.link.take()

    def _deliver(self, record: Record) -> None:
        exchange = self._exchange
        # Anyone with access to the topics can write to them, so a record is trusted only after these checks.
        try:
            head, values, payloads = open_record(record.content, exchange.max_bytes)
        except ValueError:  # includes WireError
            # Of its own records, those to hosts come back as well.
            self.foreign += record.kind != HOSTS
            return
        if head.session != exchange.session or head.run != exchange.run:
            self.foreign += 1
            return
        # The exchange's lock is held from here to the end: the epoch that is compared below must
        # still be that of the channels when the messages reach them.
        namespace = self._namespaces.get(head.environment)
        # Sent before a reset or under an earlier lease of the id; nobody waits for it any more.
        if namespace is None or head[4:6] != (namespace.lease.number, namespace.lease.epoch):
            self.stale += len(payloads)
            return
        try:
            self._arrive(namespace, head, values, payloads)
        except (KeyError, TypeError):  # forged by someone who has read one of our records
            self.foreign += 1

    def _arrive(
        self, namespace: Namespace, head: RecordHead, values: list[Any], payloads: list[Any]
    ) -> None:
        channels = namespace.ways[head.kind, head.custom_topic]
        step, each = head.step, iter(values)
        for sender, recipient, number, timestamp, payload in zip(
            each, each, each, each, payloads, strict=False
        ):
            channel = channels[sender, recipient]
            # `number < sent` refuses a number that this channel has not given out yet.
            if number == channel.received and number < channel.sent:
                channel.arrive((step, number, timestamp, payload))
            elif number < channel.received:
                self._exchange.duplicates += 1
            elif namespace.lease.fault is None:
                # Kept for the threads that wait for this environment: this thread may wait for another one.
                namespace.lease.fault = gap(channel, number)

    def forget(self, key: bytes) -> None:
        """Drop an environment's unsent records from before its reset."""
        if self._unsent:
            # Waits for a send in progress: until it succeeds, its records count as unsent.
            with self._sending:
                self._unsent = [record for record in self._unsent if record.environment != key]

    def reset(self, key: bytes, lease: int, epoch: int) -> None:
        """Inform the transport of an epoch that is about to begin."""
        self.forget(key)
        if self._exchange.encoded:
            self._transport.reset(key, lease, epoch)

    def statistics(self) -> dict[str, int]:
        """Return counts of the records sent, received and dropped."""
        return {
            "stale": self.stale,
            "foreign": self.foreign,
            "sent_records": self.sent_records,
            "sent_bytes": self.sent_bytes,
            "received_records": self.received_records,
            **{f"transport_{name}": n for name, n in self._transport.statistics().items()},
        }

    def overdue(self, channel: Channel, why: str) -> MessagingError:
        """Build the error for a message that timed out, or for a fault of the transport."""
        missing = channel.missing(why)
        if self.link is not None:
            missing = self.link.explain(channel, missing)
        trouble = self._transport.trouble()
        if not trouble:
            return missing
        lease = channel.lease
        return BrokerUnavailableError(
            f"{missing}; {trouble}", environment=lease.environment, step=lease.step
        )

    def close(self) -> None:
        """Close the transport. Waiting threads raise ClosedError."""
        # Waiting threads check the flag in every slice.
        self._closed = True
        self._transport.close()


def gap(channel: Channel, number: int) -> SequenceGapError:
    """Build the error for a message that arrived before others of its channel."""
    return SequenceGapError(
        f"{channel}: expected message {channel.received}, got message {number}; messages in between were "
        "lost. Reset the environment (clear_environment).",
        environment=channel.lease.environment,
        step=channel.lease.step,
    )


def _while_waiting(error: MessagingError, channels: Sequence[Channel]) -> MessagingError:
    if not channels:
        return error
    lease = channels[0].lease
    return type(error)(f"{channels[0]}: {error}", environment=lease.environment, step=lease.step)


def _unready(channels: Sequence[Channel]) -> list[Channel]:
    """Return the channels whose message of this step has not arrived."""
    return [
        channel
        for channel in channels
        if (not channel.queue or channel.queue[0][0] != channel.lease.step) and not channel.ready()
    ]
