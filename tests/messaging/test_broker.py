from __future__ import annotations

import pytest

from parllel.messaging import KafkaBroker, KafkaMessage, MessageType, TopicManager

ACTION = TopicManager.action_topic("grid1", "device1", "rollout_0")


def message(
    env_id="rollout_0", sender="grid1", recipient="device1", kind=MessageType.ACTION, **payload
):
    return KafkaMessage(env_id, sender, recipient, 0.0, kind, payload)


def payloads(messages):
    return [message.payload for message in messages]


@pytest.fixture(params=[True, False], ids=["encoded", "references"])
def broker(request):
    with KafkaBroker(encoded=request.param, timeout_s=0.2) as broker:
        yield broker
        broker.ledger.check()


def test_messages_arrive_in_order_and_once(broker):
    for n in range(3):
        broker.publish(ACTION, message(n=n))
    assert payloads(broker.consume(ACTION, "device1", "rollout_0", clear=False)) == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]
    got = broker.consume(ACTION, "device1", "rollout_0")
    assert payloads(got) == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [one.sequence for one in got] == [0, 1, 2]
    assert broker.consume(ACTION, "device1", "rollout_0") == []


def test_edges_step(broker):
    assert broker.join("rollout_0") == 1
    edge = broker.edge(ACTION)
    for step in range(3):
        broker.begin_step(["rollout_0"], [step])
        edge.put({"step": step}, 0.5)
        broker.await_messages([edge])
        got = edge.take()
        assert (got.payload, got.step, got.sequence) == ({"step": step}, step, step)
