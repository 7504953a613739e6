"""Reading the topics of a run from outside it.

    the processes of a run  ---->  topics of the broker  --- RunReader.read --->  `parllel messaging tap`

Reading leaves no trace: no offsets are stored and no topics are created.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from parllel.distributed.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from parllel.distributed.messaging.kafka.client_settings import ClientSettings
from parllel.distributed.messaging.kafka.frame import OPENING, unframe, unsigned
from parllel.distributed.messaging.kafka.run_topics import run_topics, runs_of
from parllel.distributed.messaging.kafka.topic_admin import described, metadata, new_client
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.record_content import read_record

_MAX_RECORDS = 1000  # fetched from the client at once
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class RunReader:
    """Reads the messages of a run without affecting it.

    If records were sent again after a broker failure, they may be read twice.

    Attributes:
        unreadable: number of records that could not be decoded as messages of this version.
        ended: True once the topics of the run are deleted.

    Raises:
        ValueError: if librdkafka rejects a setting.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.unreadable = 0
        self.ended = False
        self._settings = settings
        self._consumer: Consumer = new_client(Consumer, settings.for_consumer())

    def runs(self) -> dict[str, list[str]]:
        """Return the runs that have topics, and the kinds of topics that each run has.

        Raises:
            BrokerUnavailableError: if the broker does not answer.
        """
        found = metadata(self._consumer, self._settings, self._deadline())
        return runs_of(found.topics)

    def follow(self, run: str, kinds: Sequence[str], *, from_start: bool) -> None:
        """Start reading a run's topics, from now on or from their beginning.

        Raises:
            BrokerUnavailableError: if the broker does not answer.
            BrokerRefusedError: if it has no such topics, or denies permission to read them.
        """
        deadline = self._deadline()
        partitions = []
        for kind in kinds:
            name = run_topics(run)[kind]
            topic = metadata(self._consumer, self._settings, deadline, name).topics[name]
            if topic.error is not None or not topic.partitions:
                reason = topic.error.str() if topic.error is not None else "no partitions"
                raise BrokerRefusedError(
                    f"broker {self._settings.bootstrap}: run {run!r}: topic {name!r}: {reason}; "
                    "call `parllel messaging tap` without a run to list the existing runs"
                )
            partitions += [TopicPartition(name, number) for number in sorted(topic.partitions)]
        for partition in partitions:
            # The end is fixed now, for all partitions: `OFFSET_END` would be the end at the first fetch.
            first, end = self._offsets(partition, deadline)
            partition.offset = first if from_start else end
        self._consumer.assign(partitions)

    def read(self, timeout_s: float) -> list[KafkaMessage]:
        """Return the messages that have arrived, after waiting up to `timeout_s` for the first."""
        records: list[Message] = self._consumer.consume(_MAX_RECORDS, 0)
        # Compared with None: a message without a value is falsy.
        if not records and (first := self._consumer.poll(timeout_s)) is not None:
            records = [first, *self._consumer.consume(_MAX_RECORDS, 0)]
        return [message for record in records for message in self._messages_of(record)]

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _messages_of(self, record: Message) -> list[KafkaMessage]:
        if (error := record.error()) is not None:
            self.ended = self.ended or error.code() in _GONE
            return []
        framed = unframe(unsigned(record.value()))
        if framed is not None and framed[1] == OPENING:
            return []
        try:
            if framed is not None:
                return read_record(framed[2])
        except ValueError:
            pass
        self.unreadable += 1
        return []

    def _offsets(self, partition: TopicPartition, deadline: float) -> tuple[int, int]:
        left = max(deadline - time.monotonic(), 0.05)
        try:
            found = self._consumer.get_watermark_offsets(partition, timeout=left)
        except KafkaException as error:
            raise BrokerUnavailableError(
                f"broker {self._settings.bootstrap}: {described(error)}"
            ) from None
        if found is None:
            raise BrokerUnavailableError(
                f"broker {self._settings.bootstrap}: no offsets of {partition.topic!r} within "
                f"{self._settings.timeout_s:g} s"
            )
        return found

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout_s
