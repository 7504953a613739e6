"""State shared by all channels of a broker: outboxes, from which records are made, and watchers."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.lease import Lease
from parllel.distributed.messaging.message_tap import MessageTap
from parllel.distributed.messaging.record_content import SCHEMA, RecordHead, write_record
from parllel.distributed.messaging.transport import Record

Callback = Callable[[KafkaMessage], object]
# Bytes of a record besides its messages and the names in its head.
_HEAD = 256
_LOGGER = logging.getLogger("parllel.distributed.messaging")
# Queued calls beyond which a thread waits for the callbacks of another thread, instead of leaving more to it.
_MAX_CALLS = 1024


class Subscription:
    """A callback registered by `KafkaBroker.subscribe`.

    Attributes:
        callback: called with each message.
        active: False once cancelled.
        reported: True once an exception raised by the callback was logged.
    """

    __slots__ = ("active", "callback", "reported")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        # Cleared under the lock, and read without it just before the callback is called: one call
        # may still be running when the function that cancels the subscription returns.
        self.active = True
        self.reported = False


class Outbox:
    """Unsent messages of one environment, kind and custom topic.

    Attributes:
        ways: sender, recipient, sequence number and time of each message, concatenated.
        payloads: encoded payload of each message.
        nbytes: upper bound of the size of these messages in a record.
        most: maximum value of `nbytes` for one record.
    """

    __slots__ = ("custom_topic", "kind", "lease", "most", "nbytes", "payloads", "ways")

    def __init__(self, lease: Lease, kind: str, custom_topic: str | None, most: int) -> None:
        self.lease = lease
        self.kind = kind
        self.custom_topic = custom_topic
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Drop all messages."""
        self.ways: list[Any] = []
        self.payloads: list[Any] = []
        self.nbytes = 0


class Exchange:
    """Collect the messages of a hop into records.

        Channel.put     --- add --->  outboxes: one for each environment, kind and custom topic
        outboxes     --- seal -->  records, at the end of the hop or when one is full
        Delivery     takes the records, and hands them to the transport

    `lock` guards everything here, in channels and in leases.

    Args:
        run: the name of the run.
        encoded: True to encode messages into records; False to deliver references at once.
        capacity: maximum number of unconsumed messages per channel.
        max_bytes: maximum size of a record.

    Attributes:
        lock: guards this object, the channels and the leases. It is held only briefly, never while
            waiting.
        session: 32 random hex digits, by which a broker recognizes its own records.
        outgoing: outboxes that hold messages.
        totals: messages "published", "consumed" and so on in epochs that are over.
        duplicates: number of messages that arrived, or were sent, twice.
        latest_topics: names of custom topics that keep only the latest message.
        subscriptions: subscriptions to custom topics, by name.
    """

    def __init__(self, run: str, *, encoded: bool, capacity: int, max_bytes: int) -> None:
        self.run = run
        self.encoded = encoded
        self.capacity = capacity
        self.max_bytes = max_bytes
        # Distinguishes this broker object from all others of the run, earlier ones included.
        self.session = uuid.uuid4().hex
        # Reentrant: `publish` holds it around several calls of `Channel.put`, which takes it, too.
        self.lock = threading.RLock()
        self.outgoing: list[Outbox] = []
        self.watchers = Watchers()
        self.totals: Counter[str] = Counter()
        self.duplicates = 0
        self.latest_topics: set[str] = set()
        self.subscriptions: dict[str, list[Subscription]] = {}
        self._sealed: list[Record] = []

    def outbox(self, lease: Lease, kind: str, custom_topic: str | None) -> Outbox:
        """Create an outbox. Its size limit leaves room for the head of the record."""
        names = len(self.run) + len(lease.key) + 4 * len(custom_topic or "")
        return Outbox(lease, kind, custom_topic, self.max_bytes - _HEAD - names)

    def add(self, outbox: Outbox, way: tuple[Any, ...], payload: Any, nbytes: int) -> None:
        """Append a message to an outbox. The content of a full outbox first becomes a record."""
        # Called by `Channel.put`, which holds the lock: the order of messages in an outbox is that
        # of their numbers.
        if not outbox.payloads:
            self.outgoing.append(outbox)
        elif outbox.nbytes + nbytes > outbox.most:
            self._seal(outbox)
        outbox.ways += way
        outbox.payloads.append(payload)
        outbox.nbytes += nbytes

    def _seal(self, outbox: Outbox) -> None:
        lease, kind = outbox.lease, outbox.kind
        head = RecordHead(
            *(SCHEMA, self.run, self.session, lease.environment, lease.number, lease.epoch),
            *(lease.step, kind, outbox.custom_topic),
        )
        # One epoch and step for the whole outbox: `begin_step` flushes it, and a reset clears it, before
        # they change.
        content = write_record(head, outbox.ways, outbox.payloads)
        self._sealed.append(Record(kind, lease.key, content))
        outbox.clear()

    def seal(self) -> None:
        """Make records of the unsent messages, which keep their step. The caller holds the lock."""
        for outbox in self.outgoing:
            # Empty if a reset cleared it in the meantime.
            if outbox.payloads:
                self._seal(outbox)

    def take_hop(self) -> list[Record]:
        """Return the messages added since the last call, as records."""
        with self.lock:
            self.seal()
            self.outgoing.clear()
            records, self._sealed = self._sealed, []
            return records


class Watchers:
    """Callbacks and taps. Both receive messages in the order of arrival.

        the thread that delivers a message, holding the broker's lock   --- notify --->  calls, taps
        a thread that called the broker, after releasing the lock       <--- run ------  calls

    A callback may use the broker and may be slow, because it runs without the lock. Only one thread
    at a time runs callbacks, which keeps their order. If a callback triggers further calls, they
    run after it.

    Attributes:
        taps: message taps, which receive every message.
        failures: number of exceptions that callbacks raised.
    """

    def __init__(self) -> None:
        self.taps: list[MessageTap] = []
        self.failures = 0
        self._calls: deque[tuple[Subscription, KafkaMessage, Lease, int]] = deque()
        # Held by the one thread that runs callbacks; `_runner` is its id. A callback that uses the broker
        # re-enters `run` on that thread, and must not wait for itself.
        self._running = threading.Lock()
        self._runner: int | None = None

    def notify(
        self, message: KafkaMessage, subscriptions: Sequence[Subscription], lease: Lease
    ) -> None:
        """Pass a message that arrived to the taps, and queue its callbacks."""
        # A copy: taps are closed without the broker's lock, and the one after a closed one would be skipped.
        for tap in tuple(self.taps):
            tap.offer(message)
        # With the epoch of arrival: a reset before the call makes the message stale.
        self._calls += [
            (subscription, message, lease, lease.epoch) for subscription in subscriptions
        ]

    def run(self, timeout_s: float) -> None:
        """Run queued callbacks. If another thread is already running some, it runs these too."""
        me = threading.get_ident()
        if not self._calls or self._runner == me:
            return
        # Look again after releasing: the runner may have found the queue empty just before a call was added.
        while self._calls and self._acquire(timeout_s):
            self._runner = me
            try:
                while self._calls:
                    self._call(*self._calls.popleft())
            finally:
                self._runner = None
                self._running.release()

    def _acquire(self, timeout_s: float) -> bool:
        # Usually the runner takes over and this thread goes on. Callbacks slower than the messages slow
        # their causes down, so that the queue stays bounded.
        if len(self._calls) > _MAX_CALLS:
            return self._running.acquire(timeout=timeout_s)
        return self._running.acquire(blocking=False)

    def _call(
        self, subscription: Subscription, message: KafkaMessage, lease: Lease, epoch: int
    ) -> None:
        # A reset, or the environment's leaving, drops queued calls as it drops queued messages.
        if not subscription.active or lease.left or lease.epoch != epoch:
            return
        try:
            subscription.callback(message)
        except Exception:
            self.failures += 1
            if not subscription.reported:
                subscription.reported = True
                _LOGGER.exception(
                    "a callback of %s %r -> %r in environment %r failed; further failures are only counted",
                    *(message.message_type.value, message.sender_id, message.recipient_id),
                    message.env_id,
                )
