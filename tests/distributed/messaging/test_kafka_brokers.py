"""The mock broker; that disturbances of brokers are felt is in test_kafka_faults.py."""

from __future__ import annotations

import pytest

from parllel.testing import MockKafkaBroker

confluent_kafka = pytest.importorskip("confluent_kafka")

WAIT_S = 20.0


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
