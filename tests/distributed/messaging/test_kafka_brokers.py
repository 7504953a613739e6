"""The brokers that tests use, by a plain client: what is sent comes back, and what is disturbed is felt."""

from __future__ import annotations

import time
import uuid

import pytest

from parllel.testing import MockKafkaBroker

confluent_kafka = pytest.importorskip("confluent_kafka")

WAIT_S = 20.0


class Line:
    """One topic, written and read by a producer and a consumer."""

    def __init__(self, address: str) -> None:
        self.topic = f"line-{uuid.uuid4().hex}"
        common = {"bootstrap.servers": address, "reconnect.backoff.max.ms": 50, "log_level": 0}
        common |= {"topic.metadata.refresh.interval.ms": 100, "reconnect.backoff.ms": 10}
        self.producer = confluent_kafka.Producer({**common, "linger.ms": 0})
        client = {"group.id": "line", "enable.auto.commit": False, "fetch.wait.max.ms": 1}
        self.consumer = confluent_kafka.Consumer({**common, **client})
        self.consumer.assign([confluent_kafka.TopicPartition(self.topic, 0, 0)])

    def send(self, value: bytes) -> None:
        self.producer.produce(self.topic, value, partition=0)

    def receive(self, wait_s: float = WAIT_S) -> bytes | None:
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            self.producer.poll(0)
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                return message.value()
        return None

    def close(self) -> None:
        self.consumer.close()
        self.producer.purge()
        self.producer.flush(5)


@pytest.fixture
def line(disturbed):
    line = Line(disturbed.address)
    yield line
    line.close()
    del line.producer, line.consumer


def test_a_shared_broker_returns_what_is_sent(kafka_address):
    line = Line(kafka_address)
    line.send(b"one")
    assert line.receive() == b"one"
    line.close()


def test_clients_find_a_disturbed_broker_again_after_each_disturbance(disturbed, line):
    line.send(b"first")
    assert line.receive() == b"first"
    disturbed.proxy.cut()
    line.send(b"after a cut")
    assert line.receive() == b"after a cut"
    disturbed.pause()
    line.send(b"while stopped")
    assert line.receive(0.3) is None
    disturbed.resume()
    assert line.receive() == b"while stopped"
    disturbed.proxy.stalled = True
    line.send(b"while stalled")
    assert line.receive(0.3) is None
    disturbed.proxy.stalled = False
    assert line.receive() == b"while stalled"


def test_a_killed_broker_is_empty_after_a_restart_at_the_same_address(disturbed, line):
    line.send(b"lost")
    assert line.receive() == b"lost"
    disturbed.kill()
    assert line.receive(0.3) is None
    disturbed.start()
    again = Line(disturbed.address)
    again.topic = line.topic
    again.consumer.assign([confluent_kafka.TopicPartition(line.topic, 0, 0)])
    again.send(b"new")
    assert again.receive() == b"new"
    again.close()


def test_a_delay_of_the_proxy_holds_for_each_way(disturbed, line):
    line.send(b"first")
    assert line.receive() == b"first"
    disturbed.proxy.delay_s = 0.2
    begun = time.monotonic()
    line.send(b"slow")
    assert line.receive() == b"slow"
    assert time.monotonic() - begun >= 0.4


def test_the_mock_broker_obeys_and_refuses():
    with MockKafkaBroker() as broker:
        broker.command("topic four 4")
        client = confluent_kafka.Producer({"bootstrap.servers": broker.address, "log_level": 0})
        assert len(client.list_topics("four", timeout=WAIT_S).topics["four"].partitions) == 4
        with pytest.raises(ValueError, match="topic four 4: error topic_create: Broker: Topic al"):
            broker.command("topic four 4")
        with pytest.raises(ValueError, match="no such command, or wrong arguments: 'dance"):
            broker.command("dance")
    broker.close()
