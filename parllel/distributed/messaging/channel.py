"""The channel from one agent to another, with its sequence numbers and its queue.

    sender    --- put --->  outbox (exchange.py) ...  a transport ...  Delivery
    Delivery  --- arrive --->  queue  --- take, take_payload, consume --->  recipient

    sent       counts `put`; the next message's number
    received   counts `arrive`; the number expected next, so a larger one means a loss
    taken      counts what the recipient consumed

All of it is read and changed under the exchange's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Raw

from parllel.distributed.messaging.errors import (
    DuplicateActionError,
    MessageTooLargeError,
    MissingMessageError,
    QueueOverflowError,
)
from parllel.distributed.messaging.exchange import Exchange, Outbox, Subscription
from parllel.distributed.messaging.kafka_message import KafkaMessage, MessageType
from parllel.distributed.messaging.record_content import INSIDE, SCHEMA, wire_id
from parllel.distributed.wire.message import decode, encode, encode_part
from parllel.distributed.wire.wire_error import WireError
from parllel.errors import ClosedError
from parllel.types import State

# Bytes of a sequence number, a time, and the lengths of the names.
_OVERHEAD = 32


class ChannelKey(NamedTuple):
    """Key of a channel within its environment. `custom_topic` is None for channels of a `Topic`."""

    custom_topic: str | None
    kind: str
    sender: str
    recipient: str


class Channel:
    """FIFO queue of messages from one agent to another. Returned by `KafkaBroker.channel`.

    Stays valid across resets, until the environment leaves. All counters start at 0 with each epoch.

    Attributes:
        key: the channel's custom topic, kind, sender and recipient.
        lease: the environment's lease, with its epoch and step.
        names: sender and recipient as encoded in records.
        latest: True if a message replaces unconsumed ones before it.
        queue: step, sequence number, time and payload of each message that arrived.
        sent: number of messages sent, which is also the sequence number of the next one.
        received: number of messages that arrived, which is also the sequence number expected next.
        taken: number of messages consumed.
        late: number of messages dropped because their step was over.
        overwritten: number of messages replaced by a later one.
        subscriptions: callbacks that receive each message on arrival.
    """

    __slots__ = (
        *(
            "_acted",
            "_action",
            "_exchange",
            "_most",
            "_once",
            "_outbox",
            "_overhead",
            "key",
            "kind",
        ),
        *("late", "latest", "names", "overwritten", "lease", "queue", "received", "sent"),
        *("subscriptions", "taken"),
    )

    def __init__(self, exchange: Exchange, outbox: Outbox, key: ChannelKey) -> None:
        self._exchange = exchange
        self._outbox = outbox
        self.lease = outbox.lease
        self.key = key
        self.kind = MessageType(key.kind)
        self.latest = False
        # At most one message per step: a second, different action is a bug in the sender.
        self._once = self.kind is MessageType.ACTION
        self.names = (wire_id(key.sender), wire_id(key.recipient))
        # Four bytes per character is the most that UTF-8 needs.
        self._overhead = _OVERHEAD + 4 * (len(key.sender) + len(key.recipient))
        self._most = outbox.most - self._overhead
        self.subscriptions: Sequence[Subscription] = ()
        self.restart()

    def restart(self) -> None:
        """Begin an epoch with an empty queue and all counters at 0."""
        self.queue: list[tuple[int | None, int, float, Any]] = []
        self.sent = self.received = self.taken = self.late = self.overwritten = 0
        self._acted: int | None = None
        self._action: Any = None

    def keep_latest_only(self) -> None:
        """Make each new message replace earlier ones that were not consumed."""
        self.latest, self._once = True, False

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of messages sent, consumed, dropped as late, and replaced."""
        return self.sent, self.taken, self.late, self.overwritten

    def put(self, payload: dict[str, Any], timestamp: float = 0.0) -> None:
        """Send a message with the current hop.

        If payloads are encoded, they may be modified afterwards.

        Raises:
            TypeError: if the payload is not a dict.
            WireError: if a value cannot be encoded. The message names its path.
            DuplicateActionError: if a different action was already sent in this step. An equal
                action is dropped.
            QueueOverflowError: if the queue is full.
            MessageTooLargeError: if the payload exceeds the transport's limit.
            ClosedError: if the environment has left.
        """
        exchange, lease = self._exchange, self.lease
        # One lock for number and outbox, so that messages enter a record in the order of their numbers.
        # Nothing is counted before all checks have passed: a refused message leaves no gap in the numbers.
        with exchange.lock:
            if lease.left:
                raise ClosedError(
                    f"{self}: the environment has left the broker; join again to get new channels"
                )
            if type(payload) is not dict:
                raise TypeError(f"{self}: payload: expected a dict, got {payload!r}")
            if type(timestamp) is not float:
                timestamp = _number(timestamp)
            part: Any = payload
            if exchange.encoded:
                # Encoded now rather than at the end of the hop: the sender may reuse its arrays at once.
                try:
                    part = encode_part(payload, inside=INSIDE)
                except WireError as error:
                    error.args = (f"{error.args[0]} ({self})",)
                    raise error.under("payload") from None
                if len(part) > self._most:
                    raise self._too_large(part)
            step, number = lease.step, self.sent
            once = self._once and step is not None
            if once and self._acted == step:
                self._drop_same(part)
                return
            # Messages in transit count, too: otherwise a sender that never flushes would fill the memory.
            if number - self.taken - self.late - self.overwritten >= exchange.capacity:
                raise self._overflow()
            if once:
                self._acted, self._action = step, part
            self.sent = number + 1
            if exchange.encoded:
                way = (*self.names, number, timestamp)
                exchange.add(self._outbox, way, part, len(part) + self._overhead)
            else:
                self.arrive((step, number, timestamp, part))

    def _too_large(self, part: Raw) -> MessageTooLargeError:
        return MessageTooLargeError(
            f"{self}: payload: expected at most {self._most} bytes (max_bytes of the transport), "
            f"got {len(part)}; send a reference to the data instead, such as a path",
            environment=self.lease.environment,
            step=self.lease.step,
        )

    def _drop_same(self, part: Any) -> None:
        if part is not self._action and not _equal(part, self._action):
            raise DuplicateActionError(
                f"{self}: expected one action per step, got a second one that differs from the "
                "first; call begin_step between them, or create the topic with "
                "create_topic(topic, latest=True)",
                environment=self.lease.environment,
                step=self.lease.step,
            )
        self._exchange.duplicates += 1

    def _overflow(self) -> QueueOverflowError:
        return QueueOverflowError(
            f"{self}: the queue is full: {self._exchange.capacity} messages, the broker's "
            "capacity, have not been consumed; consume them, clear the environment, or create the "
            "topic with create_topic(topic, latest=True)",
            environment=self.lease.environment,
            step=self.lease.step,
        )

    def arrive(self, item: tuple[int | None, int, float, Any]) -> None:
        """Append the next message in sequence, and notify watchers. The caller holds the lock."""
        queue = self.queue
        if self.latest and queue:
            self.overwritten += len(queue)
            queue.clear()
        queue.append(item)
        self.received += 1
        if self.subscriptions or self._exchange.watchers.taps:
            # Callbacks are only queued here, as this thread holds the lock; `Watchers.run` calls them.
            self._exchange.watchers.notify(self.message_of(item), self.subscriptions, self.lease)
            if not self.key.recipient:  # a broadcast to callbacks: no agent will consume it
                queue.clear()
                self.taken += 1

    def ready(self) -> bool:
        """Drop messages of earlier steps, and check whether this step's message has arrived."""
        queue, step = self.queue, self.lease.step
        while queue and step is not None and queue[0][0] != step:
            queue.pop(0)
            self.late += 1
        return bool(queue)

    def take(self) -> KafkaMessage:
        """Consume the next message. Raises as `take_payload`."""
        with self._exchange.lock:
            return self.message_of(self._next())

    def take_payload(self) -> dict[str, Any]:
        """Consume the next message and return its payload. Messages of earlier steps are dropped.

        Raises:
            MissingMessageError: if it has not arrived. `KafkaBroker.await_messages` waits for it.
            ClosedError: if the environment has left.
        """
        with self._exchange.lock:
            payload: dict[str, Any] = self._next()[3]
            return payload

    def _next(self) -> tuple[int | None, int, float, Any]:
        queue, step = self.queue, self.lease.step
        # The usual case first, without a call: this runs for every message.
        if (not queue or (queue[0][0] != step and step is not None)) and not self.ready():
            if self.lease.left:
                raise ClosedError(
                    f"{self}: the environment has left the broker; join again to get new channels"
                )
            raise self.missing("call await_messages first")
        self.taken += 1
        return queue.pop(0)

    def consume(self, clear: bool) -> list[KafkaMessage]:
        """Return the messages that have arrived, and remove them if `clear`. Late actions are dropped."""
        if self._once:
            self.ready()
        messages = [self.message_of(item) for item in self.queue]
        if clear:
            self.taken += len(messages)
            self.queue.clear()
        return messages

    def message_of(self, item: tuple[int | None, int, float, Any]) -> KafkaMessage:
        """Build the KafkaMessage for an item of the queue."""
        step, number, timestamp, payload = item
        custom_topic, _, sender, recipient = self.key
        lease = self.lease
        return KafkaMessage(
            *(lease.environment, sender, recipient, timestamp, self.kind, payload),
            *(lease.number, lease.epoch, step, number, SCHEMA, custom_topic),
        )

    def stamp(self, message: KafkaMessage) -> None:
        """Write the numbers of the last `put` into a message.

        The caller must have held the lock since that `put`.
        """
        lease = self.lease
        message.lease, message.epoch, message.step = (
            lease.number,
            lease.epoch,
            lease.step,
        )
        message.sequence, message.schema, message.custom_topic = (
            self.sent - 1,
            SCHEMA,
            self.key.custom_topic,
        )

    def state(self) -> State:
        """Return the counters and the queue. All messages sent must have arrived before."""
        queue = np.frombuffer(encode([list(item) for item in self.queue]), np.uint8).copy()
        return {
            "key": list(self.key),
            "latest": self.latest,
            "counts": list(self.counts()),
            "queue": queue,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        if state["latest"]:
            self.keep_latest_only()
        self.sent, self.taken, self.late, self.overwritten = state["counts"]
        # Nothing was in transit when the state was saved.
        self.received = self.sent
        self.queue = [
            tuple(item) for item in decode(np.asarray(state["queue"], np.uint8).tobytes())
        ]

    def missing(self, what: str) -> MissingMessageError:
        """Build the error for a message that has not arrived."""
        return MissingMessageError(
            f"{self}: message {self.received} has not arrived; {what}",
            environment=self.lease.environment,
            step=self.lease.step,
        )

    def __str__(self) -> str:
        """Return environment, kind, agents and step, for error messages."""
        custom_topic, kind, sender, recipient = self.key
        step = "" if self.lease.step is None else f", step {self.lease.step}"
        via = "" if custom_topic is None else f" over {custom_topic!r}"
        return (
            f"environment {self.lease.environment!r}, {kind} {sender!r} -> {recipient!r}{via}{step}"
        )


class SentChannel(Channel):
    """The channel to an agent in another process. A message that comes back has only been stored."""

    __slots__ = ()

    def arrive(self, item: tuple[int | None, int, float, Any]) -> None:
        """Count a message of this process that the broker has stored, and notify watchers."""
        super().arrive(item)
        self.taken += len(self.queue)
        self.queue.clear()


def _number(timestamp: Any) -> float:
    """Convert a time to a float, or keep an int that fits 64 bits."""
    if type(timestamp) is int and abs(timestamp) < 1 << 63:
        return timestamp
    return float(timestamp)


def _equal(part: Any, other: Any) -> bool:
    if not isinstance(part, dict):  # both are encoded
        return bool(part == other)
    try:
        return encode(part) == encode(other)
    except WireError:
        return False
