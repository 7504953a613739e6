"""What all channels of a broker share: messages on their way into records, and those who only watch them."""

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
# Bytes of a record beside its messages and the names in its head.
_HEAD = 256
_LOGGER = logging.getLogger("parllel.distributed.messaging")
# Calls that may wait while another thread is in a callback, before those who cause more have to wait too.
_MAX_CALLS = 1024


class Subscription:
    """One call of `KafkaBroker.subscribe`.

    Attributes:
        callback: is called with each message.
        active: whether it still is.
        reported: whether an exception of it was logged.
    """

    __slots__ = ("active", "callback", "reported")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.active = True
        self.reported = False


class Outbox:
    """The messages of one environment and kind that were not sent yet.

    Attributes:
        ways: of each message sender, recipient, sequence number and time, one after the other.
        payloads: of each message, encoded.
        nbytes: at least as many as both will have.
        most: bytes that they may have in one record.
    """

    __slots__ = ("custom_topic", "kind", "lease", "most", "nbytes", "payloads", "ways")

    def __init__(self, lease: Lease, kind: str, custom_topic: str | None, most: int) -> None:
        self.lease = lease
        self.kind = kind
        self.custom_topic = custom_topic
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self.ways: list[Any] = []
        self.payloads: list[Any] = []
        self.nbytes = 0


class Exchange:
    """Collect the messages of a hop into records.

        Channel.put     --- add --->  outboxes: one for each environment, kind and custom topic
        outboxes     --- seal -->  records, at the end of the hop or when one is full
        Delivery     takes the records, and hands them to the transport

    Whatever is here, in a channel or in a lease is read and changed by those alone who hold the lock.

    Args:
        run: the name of the run.
        encoded: whether messages become records; otherwise they arrive at once, as references.
        capacity: messages of one channel that may wait for their consumer.
        max_bytes: of a record.

    Attributes:
        lock: held for short times alone, never while waiting for anything.
        session: 32 random digits, by which a broker knows its own records.
        outgoing: outboxes that hold messages.
        totals: of all epochs that are over: messages "published", "consumed" and so on.
        duplicates: messages that came, or were sent, twice.
        latest_topics: names of custom topics of which only the latest message is kept.
        subscriptions: to custom topics, by their names.
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
        self.latest_topics: set[str] = set()
        self.subscriptions: dict[str, list[Subscription]] = {}
        self._sealed: list[Record] = []

    def outbox(self, lease: Lease, kind: str, custom_topic: str | None) -> Outbox:
        """Return a new outbox."""
        names = len(self.run) + len(lease.key) + 4 * len(custom_topic or "")
        return Outbox(lease, kind, custom_topic, self.max_bytes - _HEAD - names)

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
        lease, kind = outbox.lease, outbox.kind
        head = RecordHead(
            *(SCHEMA, self.run, self.session, lease.environment, lease.number, lease.epoch),
            *(lease.step, kind, outbox.custom_topic),
        )
        content = write_record(head, outbox.ways, outbox.payloads)
        self._sealed.append(Record(kind, lease.key, content))
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


class Watchers:
    """Show messages to callbacks and taps, in the order in which they arrived.

        who delivers a message, with the broker's lock   --- saw --->  calls, taps
        who called the broker, when it has let it go     <--- run ---  calls

    A callback may use the broker, and take its time, since the lock is not held; one thread at a time runs
    them, so that their order stays. What a callback causes is called after it.

    Attributes:
        taps: those who get a copy of what arrives.
        failures: exceptions that callbacks raised.
    """

    def __init__(self) -> None:
        self.taps: list[MessageTap] = []
        self.failures = 0
        self._calls: deque[tuple[Subscription, KafkaMessage, Lease, int]] = deque()
        self._running = threading.Lock()
        self._runner: int | None = None

    def notify(
        self, message: KafkaMessage, subscriptions: Sequence[Subscription], lease: Lease
    ) -> None:
        """Note that a message has arrived."""
        for tap in self.taps:
            tap.offer(message)
        self._calls += [(one, message, lease, lease.epoch) for one in subscriptions]

    def run(self, timeout_s: float) -> None:
        """Call the callbacks of what has arrived; another thread that does so already goes on with these."""
        me = threading.get_ident()
        if not self._calls or self._runner == me:
            return
        # The thread that has just made its last call would miss ours: so look again.
        while self._calls and self._acquire(timeout_s):
            self._runner = me
            try:
                while self._calls:
                    self._call(*self._calls.popleft())
            finally:
                self._runner = None
                self._running.release()

    def _acquire(self, timeout_s: float) -> bool:
        if len(self._calls) > _MAX_CALLS:
            return self._running.acquire(timeout=timeout_s)
        return self._running.acquire(blocking=False)

    def _call(
        self, subscription: Subscription, message: KafkaMessage, lease: Lease, epoch: int
    ) -> None:
        # A reset, or the end of the environment, ends what waits here as it does in the queues.
        if not subscription.active or lease.left or lease.epoch != epoch:
            return
        try:
            subscription.callback(message)
        except Exception:
            self.failures += 1
            if not subscription.reported:
                subscription.reported = True
                _LOGGER.exception(
                    "a callback of %s %r -> %r in environment %r failed; more failures are counted alone",
                    *(message.message_type.value, message.sender_id, message.recipient_id),
                    message.env_id,
                )
