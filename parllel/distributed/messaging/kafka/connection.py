"""The clients by which a transport reaches its broker: one set, used until something breaks.

    send_hop  --produce-->  Producer  --TCP-->  log of the topic  --TCP-->  Consumer  --poll-->  receive
                               |                                               |
                               +---- failed, fatal errors ---> `broken` <------+

Callbacks of the client run inside `poll` of this object, in the thread that called it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

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
from parllel.distributed.messaging.kafka.frame import OPENING, frame, unframe
from parllel.distributed.messaging.kafka.topic_admin import LOG, TopicAdmin, metadata, new_client
from parllel.distributed.messaging.transport import Record

# Consumed at once, beyond the one that was waited for.
_MOST = 4096
_SLICE_S = 0.05
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_WITHOUT_REASON = (KafkaError._ALL_BROKERS_DOWN, KafkaError._FATAL)
# No time mends these; a user has to.
_REFUSALS = (
    *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),
    *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
    *(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    *(KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION),
)


class KafkaConnection:
    """Send and receive what is framed for one session.

    Args:
        topics: names of the topics by the kind of record.
        partitions: those of each topic that are read.
        session: 16 bytes of the transport's own.

    Attributes:
        broken: why it is of no use any more, "" while it is.
        refused: why no other connection would be of use, "" while one would.
        too_large: numbers of the records that the broker refused for their size.
        foreign: records that are not this session's.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topics: Mapping[str, str],
        partitions: Sequence[int],
        session: bytes,
    ) -> None:
        self.broken = ""
        self.refused = ""
        self.too_large: list[int] = []
        self.foreign = 0
        self._settings, self._topics, self._session = settings, topics, session
        self._lanes = [(topic, partition) for topic in topics.values() for partition in partitions]
        self._said = ""  # by the client, last
        self._producer: Producer = new_client(Producer, settings.for_producer(), self._on_error)
        self._consumer: Consumer | None = new_client(
            Consumer, settings.for_consumer(), self._on_error
        )

    def open(self, admin: TopicAdmin, deadline: float) -> None:
        """Return once what is sent from now on will be received.

        A record of its own goes through each lane, and reading begins there: what is older is of no use, and
        what brokers report as the end of a log may lag.

        Raises:
            BrokerRefusedError: if the broker lacks something, or permits too little.
            BrokerUnavailableError: if it does not answer by the deadline.
        """
        admin.ensure(self._reading(), self._producer, deadline)
        marker = frame(self._session, OPENING, str(id(self)).encode())
        offsets: dict[tuple[str, int], int] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._fail(error)
            else:
                found = message.offset()
                lane = str(message.topic()), int(message.partition() or 0)
                offsets[lane] = OFFSET_BEGINNING if found is None or found < 0 else found

        for topic, partition in self._lanes:
            with self._noting():
                self._producer.produce(topic, marker, partition=partition, on_delivery=delivered)
        self._until(lambda: len(offsets) == len(self._lanes), deadline, "takes no records")
        partitions = [TopicPartition(*lane, offset) for lane, offset in offsets.items()]
        self._reading().assign(partitions)
        closed = set(offsets)

        def opened() -> bool:
            for message in self._messages(_SLICE_S):
                if message.value() == marker:
                    closed.discard((str(message.topic()), int(message.partition() or 0)))
            return not closed

        self._until(opened, deadline, "does not hand out what it took")

    def send(self, number: int, record: Record, partition: int, deadline: float) -> float:
        """Hand a record to the client, which sends it by itself; afterwards look at `broken`.

        Returns the seconds that were spent waiting for room in the client's queue.

        Raises:
            BufferError: if the client's queue stays full until the deadline.
        """
        value = frame(self._session, number, record.content)
        topic, key = self._topics[record.kind], record.environment
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
                self._serve(_SLICE_S)
                waited_s += _SLICE_S
        return waited_s

    def announce(self, topic: str, content: bytes, deadline: float) -> bool:
        """Put a record into partition 0 of a topic, and return whether it is there by the deadline."""
        done: list[bool] = []
        if self._consumer is None:  # closed
            return False
        try:
            with self._noting():
                self._producer.produce(
                    topic, content, partition=0, on_delivery=lambda error, _: done.append(not error)
                )
            self._until(lambda: bool(done), deadline, "takes no records")
        except (BrokerUnavailableError, BrokerRefusedError, BufferError):
            return False
        return done == [True]

    def poll(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Return number and content of each record of this session that has come."""
        found = []
        for message in self._messages(timeout_s):
            framed = unframe(message.value())
            if framed is None or framed[0] != self._session:
                self.foreign += 1
            elif framed[1] != OPENING:
                found.append(framed[1:])
        return found

    def answers(self, timeout_s: float) -> bool:
        """Return whether the broker answers a request now."""
        try:
            topic = next(iter(self._topics.values()))
            metadata(self._reading(), self._settings, time.monotonic() + timeout_s, topic)
        except BrokerUnavailableError:
            return False
        return True

    def said(self) -> str:
        """Return what the clients said last of failures, "" if they had nothing to say."""
        return self.refused or self._said or self.broken

    def close(self) -> None:
        """End the clients; what they had not sent is given up."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self.broken = self.broken or "closed"
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._serve(0)
        consumer.close()
        # The threads and sockets of a producer go with the last reference to it.
        del self._producer

    def _reading(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def _messages(self, timeout_s: float) -> list[Message]:
        """Return what has come, after waiting for the first if nothing has."""
        if self._consumer is None:  # closed, and the next one is not made yet
            time.sleep(timeout_s)
            return []
        self._serve(0)
        messages: list[Message] = []
        with self._noting():
            messages += self._consumer.consume(_MOST, 0)
            if not messages and timeout_s > 0:
                first = self._consumer.poll(timeout_s)
                # A message without a value counts as false.
                if first is not None:
                    messages += [first, *self._consumer.consume(_MOST, 0)]
                self._serve(0)
        good = []
        for message in messages:
            if (error := message.error()) is None:
                good.append(message)
            else:
                self._on_consumer_error(error)
        return good

    def _serve(self, timeout_s: float) -> None:
        """Let the producer call back."""
        with self._noting():
            self._producer.poll(timeout_s)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Take what the clients raise for what it is: they, too, are of no use any more."""
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
        # That all brokers are down, or that an error was fatal: what was said before says why.
        if error.code() not in _WITHOUT_REASON or not self._said:
            self._said = error.str()
        if error.fatal() or error.code() in (*_REFUSALS, KafkaError._FATAL):
            self._fail(error)

    def _on_consumer_error(self, error: KafkaError) -> None:
        self._said = error.str()
        if error.code() != KafkaError._TRANSPORT:
            self._fail(error)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        framed = unframe(message.value())
        if error.code() in _TOO_LARGE and framed is not None:
            self.too_large.append(framed[1])
        else:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        if not self.broken:
            LOG.info("connection to %s: %s", self._settings.bootstrap, error)
            self.broken = error.str()
        if error.code() in _REFUSALS:
            self.refused = error.str()
