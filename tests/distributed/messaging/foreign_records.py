"""Bytes on the topics of a run that are not its own: noise, halves of records, and its records once more."""

from __future__ import annotations

import time
import uuid

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

_WAIT_S = 20.0


def topics_of(address: str, run: str) -> dict[str, int]:
    """Return the topics whose names hold the run's, with their numbers of partitions."""
    client = Producer({"bootstrap.servers": address, "log_level": 0})
    topics = client.list_topics(timeout=_WAIT_S).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if run in name}


def records_of(address: str, run: str, most: int) -> list[tuple[bytes | None, bytes]]:
    """Return the first records of a run, as (key, content)."""
    config = {"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "log_level": 0}
    consumer = Consumer({**config, "enable.auto.commit": False, "fetch.wait.max.ms": 1})
    consumer.assign(
        [
            TopicPartition(topic, partition, 0)
            for topic, count in topics_of(address, run).items()
            for partition in range(count)
        ]
    )
    found: list[tuple[bytes | None, bytes]] = []
    deadline = time.monotonic() + _WAIT_S
    while len(found) < most:
        assert time.monotonic() < deadline, f"run {run}: only {len(found)} of {most} records"
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append((message.key(), message.value() or b""))
    consumer.close()
    return found


def put_foreign_records(
    address: str, run: str, records: list[tuple[bytes | None, bytes]], seed: int = 0
) -> int:
    """Put records on all topics of a run, whole and in halves, and noise; return how many there are now."""
    rng = np.random.default_rng(seed)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
    contents: list[tuple[bytes | None, bytes | None]] = [
        (b"a", b""),
        (None, None),
        (b"\xff", b"{}"),
    ]
    contents += [(rng.bytes(5), rng.bytes(int(rng.integers(1, 2000)))) for _ in range(50)]
    for key, content in records:
        contents += [(key, content), (key, content[: len(content) // 2]), (key, content + b"\0")]
    sent = 0
    for topic, count in topics_of(address, run).items():
        for partition in range(count):
            for key, content in contents:
                producer.produce(topic, content, key, partition)
                sent += 1
            assert producer.flush(_WAIT_S) == 0
    return sent
