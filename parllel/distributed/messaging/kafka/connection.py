"""A transport's connection to its broker: one producer and one consumer, used until something breaks.

    send_hop  --produce-->  Producer  --TCP-->  log of the topic  --TCP-->  Consumer  --poll-->  receive
                               |                                               |
                               +---- failed, fatal errors ---> `broken` <------+

librdkafka's own threads do the sending and fetching. Its callbacks run only inside calls of this object, in
the thread that made the call. A connection is never repaired: once `broken`, the transport replaces it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from parllel.distributed.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from parllel.distributed.messaging.kafka.client_settings import ClientSettings
from parllel.distributed.messaging.kafka.frame import OPENING, frame, sign, signed_value, unframe
from parllel.distributed.messaging.kafka.topic_admin import LOG, TopicAdmin, metadata, new_client
from parllel.distributed.messaging.transport import OtherRecord, Record

# Maximum number of records fetched from the client at once.
_MAX_RECORDS = 4096
_SLICE_S = 0.05
# How long a record that others have overtaken may take to appear. It is gone if the log was shortened.
_GAP_S = 1.0
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
# Errors that tell less than the one reported before them.
_WITHOUT_REASON = (KafkaError._ALL_BROKERS_DOWN, KafkaError._FATAL)
# Errors that waiting does not cure; the user has to change something.
_REFUSALS = (
    *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),
    *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
    *(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    *(KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION),
)


class KafkaConnection:
    """Sends and receives the framed records of one session.

    Args:
        topics: topic names, keyed by kind of record.
        partitions: partitions of each topic to read.
        session: 16 bytes, unique to the transport.
        others: receives the records of the run's other sessions; None to count them as foreign.
        offsets: where to begin reading each lane, if the log still has it. Kept up to date for the next
            connection, if `others` is given.
        key: signs records. Records without its digest are dropped. None: records are not signed.

    Attributes:
        broken: reason why the connection is unusable; "" while it works.
        refused: reason why a new connection would fail too; "" if it might work.
        too_large: numbers of the records that the broker refused because of their size.
        foreign: number of records from other sessions.
        forged: number of records that are not signed with the key.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topics: Mapping[str, str],
        partitions: Sequence[int],
        session: bytes,
        others: deque[OtherRecord] | None = None,
        offsets: dict[tuple[str, int], int] | None = None,
        key: bytes | None = None,
    ) -> None:
        # Set by callbacks, in the thread that sends or in the one that receives. Each is a single
        # store, which the other thread may read without a lock.
        self.broken = ""
        self.refused = ""
        self.too_large: list[int] = []
        self.foreign = self.forged = 0
        self._key = key
        # Without a key, no call is added to what is done for each record.
        self._value_of: Callable[[Message], bytes | None] = (
            Message.value if key is None else self._signed_value
        )
        self._settings, self._topics, self._session = settings, topics, session
        self._others, self._offsets = others, {} if offsets is None else offsets
        self._gaps: dict[
            tuple[str, int], tuple[int, float]
        ] = {}  # offset, and since when it is missing
        self._kinds = {topic: kind for kind, topic in topics.items()}
        self._lanes = [(topic, partition) for topic in topics.values() for partition in partitions]
        self._closed = False
        self._last_error = ""  # as reported by either client
        self._producer: Producer = new_client(Producer, settings.for_producer(), self._on_error)
        self._consumer: Consumer | None = new_client(
            Consumer, settings.for_consumer(), self._on_error
        )

    def open(self, admin: TopicAdmin, deadline: float) -> None:
        """Connect, and return once every record sent from now on will be received.

        A marker record is sent through each lane, and reading begins at this marker. Older records
        are not needed, except those of other sessions since the connection before. The end of a log as
        reported by the broker may lag behind.

        Raises:
            BrokerRefusedError: if the broker lacks a feature or denies permission.
            BrokerUnavailableError: if it does not answer by the deadline.
        """
        admin.ensure(self._reading(), self._producer, deadline)
        # Unique to this object: markers of the connections before it are in the same log.
        marker = frame(self._session, OPENING, str(id(self)).encode())
        offsets: dict[tuple[str, int], int] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._fail(error)
            else:
                found = message.offset()
                offsets[_lane_of(message)] = (
                    OFFSET_BEGINNING if found is None or found < 0 else found
                )

        # First every lane's marker is stored, so that its offset is known; then reading begins there.
        for topic, partition in self._lanes:
            with self._noting():
                value = self._signed(marker, topic)
                self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        self._until(lambda: len(offsets) == len(self._lanes), deadline, "accepts no records")
        # An earlier offset beyond the marker's is one of a log that the broker has lost.
        partitions = [
            TopicPartition(*lane, min(offset, self._offsets.get(lane, offset)))
            for lane, offset in offsets.items()
        ]
        self._reading().assign(partitions)
        pending = set(offsets)

        def opened() -> bool:
            for message in self._messages(_SLICE_S):
                value = self._value_of(message)
                if value == marker:
                    pending.discard(_lane_of(message))
                elif self._others is not None:
                    framed = unframe(value)
                    # Records of this session that are missing will be sent again.
                    if framed is None or framed[0] != self._session:
                        self._take_other(message, framed)
            return not pending

        # The consumer works once it has returned every marker.
        self._until(opened, deadline, "does not return the records it accepted")

    def send(self, number: int, record: Record, partition: int, deadline: float) -> float:
        """Pass a record to the client, which sends it in the background. Failures appear in `broken`.

        Returns the seconds spent waiting for room in the client's queue.

        Raises:
            BufferError: if the client's queue is still full at the deadline.
        """
        topic, key = self._topics[record.kind], record.environment
        value = frame(self._session, number, record.content)
        if self._key is not None:
            value = sign(value, topic, self._key)
        waited_s = 0.0
        while not self.broken:
            try:
                with self._noting():
                    self._producer.produce(
                        topic, value, key, partition, on_delivery=self._on_delivery
                    )
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                # Delivery reports occupy the queue until they are served.
                self._serve(_SLICE_S)
                waited_s += _SLICE_S
        return waited_s

    def announce(self, topic: str, content: bytes, deadline: float) -> bool:
        """Write a record to partition 0 of a topic. Returns False if it failed or timed out."""
        done: list[bool] = []
        if self._closed:
            return False
        try:
            with self._noting():
                self._producer.produce(
                    topic,
                    self._signed(content, topic),
                    partition=0,
                    on_delivery=lambda error, _: done.append(not error),
                )
            # Not `_until`: a connection that stopped reading can still announce this.
            while not done and not self.refused and time.monotonic() < deadline:
                self._serve(_SLICE_S / 10)
        # Not an error: at worst the run's topics are kept longer than needed.
        except BufferError:
            return False
        return done == [True]

    def poll(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Return the number and content of each of the session's records that have arrived."""
        found = []
        for message in self._messages(timeout_s):
            framed = unframe(self._value_of(message))
            # Other sessions of the run share the topics. Markers are only for `open`.
            if framed is None or framed[0] != self._session:
                self._take_other(message, framed)
            elif framed[1] != OPENING:
                found.append(framed[1:])
        return found

    def _signed(self, value: bytes, topic: str) -> bytes:
        return value if self._key is None else sign(value, topic, self._key)

    def _signed_value(self, message: Message) -> bytes | None:
        assert self._key is not None
        content = message.value()
        value = signed_value(content, str(message.topic()), self._key)
        self.forged += value is None
        return value

    def _take_other(self, message: Message, framed: tuple[bytes, int, bytes] | None) -> None:
        if framed is None or self._others is None:
            # Without its digest, a record has been counted as forged.
            self.foreign += framed is not None or self._key is None
        elif framed[1] != OPENING:
            record = Record(self._kinds[str(message.topic())], message.key() or b"", framed[2])
            self._others.append(OtherRecord(framed[0], record))

    def answers(self, timeout_s: float) -> bool:
        """Check whether the broker answers a request within `timeout_s`."""
        try:
            topic = next(iter(self._topics.values()))
            metadata(self._reading(), self._settings, time.monotonic() + timeout_s, topic)
        except BrokerUnavailableError:
            return False
        return True

    def last_error(self) -> str:
        """Return the last failure that the clients reported, or "" if there was none."""
        return self.refused or self._last_error or self.broken

    def stop_reading(self) -> None:
        """Close the consumer, dropping unsent records. Only `announce` works from here on. Idempotent."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self.broken = self.broken or "closed"
        # Unsent records are dropped here: the transport sends them again through the next connection. Not
        # those that are on their way: an idempotent producer that dropped them continues under a new epoch,
        # and some brokers refuse what it announces then.
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)
        self._serve(0)
        consumer.close()

    def close(self) -> None:
        """Close the clients, dropping unsent records. Idempotent."""
        if self._closed:
            return
        self.stop_reading()
        self._closed = True
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._serve(0)
        # A producer has no `close`: its threads and sockets end with the last reference to it.
        del self._producer

    def _reading(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def _messages(self, timeout_s: float) -> list[Message]:
        """Return the messages that have arrived, after waiting up to `timeout_s` for the first."""
        if self._consumer is None:  # closed, and its replacement failed to open
            time.sleep(timeout_s)
            return []
        self._serve(0)
        messages: list[Message] = []
        with self._noting():
            # `consume` with a time-out would wait until it has all of them, so wait with `poll` for one.
            messages += self._consumer.consume(_MAX_RECORDS, 0)
            if not messages and timeout_s > 0:
                first = self._consumer.poll(timeout_s)
                # Not `if first`: a message without a value is falsy.
                if first is not None:
                    messages += [first, *self._consumer.consume(_MAX_RECORDS, 0)]
                self._serve(0)
        good = []
        for message in messages:
            if (error := message.error()) is None:
                good.append(message)
            else:
                self._on_consumer_error(error)
        return good if self._others is None else self._without_gaps(good)

    def _without_gaps(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages up to the first that is missing in each lane, which is read again from there.

        With several writers, a broker may return a record before another with a lower offset. The consumer
        would never return that one. Its own session would send it again, but it has received it.
        """
        found, gaps = [], set()
        for message in messages:
            lane, offset = _lane_of(message), int(message.offset() or 0)
            expected = self._offsets.get(lane, offset)
            if lane in gaps or (offset > expected and self._may_appear(lane, expected)):
                gaps.add(lane)
                continue
            self._offsets[lane] = offset + 1
            found.append(message)
        for lane in gaps:
            with self._noting():
                self._reading().seek(TopicPartition(*lane, self._offsets[lane]))
        return found

    def _may_appear(self, lane: tuple[str, int], offset: int) -> bool:
        missing, since = self._gaps.get(lane, (-1, 0.0))
        if missing != offset:
            since = time.monotonic()
            self._gaps[lane] = offset, since
        return time.monotonic() - since < _GAP_S

    def _serve(self, timeout_s: float) -> None:
        """Run the producer's pending callbacks."""
        with self._noting():
            self._producer.poll(timeout_s)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Record an exception of a client as a failure of the connection."""
        try:
            yield
        except KafkaException as error:
            self._on_error(error.args[0])
        except SystemError as error:  # raised by some versions, after a fatal error
            self.broken = self.broken or str(error)

    def _until(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        while not done():
            self._serve(_SLICE_S / 10)
            if self.refused:
                raise BrokerRefusedError(f"broker {self._settings.bootstrap}: {self.refused}")
            if self.broken or time.monotonic() > deadline:
                raise BrokerUnavailableError(f"it {what}")

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers down" and "fatal error" must not hide the error before them, which has the reason.
        if error.code() not in _WITHOUT_REASON or not self._last_error:
            self._last_error = error.str()
        if error.fatal() or error.code() in (*_REFUSALS, KafkaError._FATAL):
            self._fail(error)

    def _on_consumer_error(self, error: KafkaError) -> None:
        self._last_error = error.str()
        # The client reconnects after transport errors by itself.
        if error.code() != KafkaError._TRANSPORT:
            self._fail(error)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        framed = unframe(self._value_of(message))
        # Too large is the record's fault, not the connection's.
        if error.code() in _TOO_LARGE and framed is not None:
            self.too_large.append(framed[1])
        else:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        # The first failure is the cause; those after it are consequences.
        if not self.broken:
            LOG.info("connection to %s: %s", self._settings.bootstrap, error)
            self.broken = error.str()
        if error.code() in _REFUSALS:
            self.refused = error.str()


def _lane_of(message: Message) -> tuple[str, int]:
    """Return the topic and partition of a message."""
    return str(message.topic()), int(message.partition() or 0)
