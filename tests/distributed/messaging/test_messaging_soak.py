"""Millions of messages over each broker, with resets and renames: none lost, none twice, and nothing grows.

PARLLEL_SOAK_MESSAGES (10,000,000) shortens or lengthens it.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack

import psutil
import pytest
from private_memory import private_memory

pytest.importorskip("confluent_kafka")

from kafka_brokers import OWN_KINDS, START
from traffic import MESSAGES, Traffic

from parllel.distributed.messaging import KafkaBroker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

MANY = int(os.environ.get("PARLLEL_SOAK_MESSAGES", 10_000_000))
N_ENVS = 256
WARM_UP = 0.2  # of the steps; allocators and caches fill
MAY_GROW = 4 * 2**20  # bytes
RESET, RENAME = 0.05, 0.05  # probabilities of each, after a step
# Of the messages: tansu looks through all that it holds at each request, which takes longer and longer.
SHARE = {"tansu": 0.01}


@pytest.mark.parametrize("kind", ["references", "memory", *OWN_KINDS])
def test_all_messages_arrive_once_and_nothing_grows(kind):
    steps = int(MANY * SHARE.get(kind, 1.0)) // (N_ENVS * MESSAGES)
    rng = random.Random(0)
    process = psutil.Process()
    with ExitStack() as stack:
        if kind in OWN_KINDS:
            server = stack.enter_context(START[kind]())
            broker = KafkaBroker("kafka", bootstrap=server.address, timeout_s=30.0)
        else:
            broker = KafkaBroker(encoded=kind == "memory", timeout_s=30.0)
        stack.enter_context(broker)
        traffic = Traffic(broker, [f"rollout_{i}" for i in range(N_ENVS)])
        warm = descriptors = given_up = 0
        for number in range(steps):
            traffic.step()
            if rng.random() < RESET:
                traffic.send_half()
                traffic.reset()
                given_up += N_ENVS
            if rng.random() < RENAME:
                traffic.rename(rng.randrange(N_ENVS), f"renamed_{number}")
            if number == int(steps * WARM_UP):
                warm, descriptors = private_memory(), process.num_fds()
        grown = private_memory() - warm
        broker.ledger.check()
        counts = broker.ledger.counts()
        print(f"{kind}: {counts}, {broker.statistics()}, {grown:,} bytes more", flush=True)
        assert counts["consumed"] == steps * N_ENVS * MESSAGES
        assert counts["cleared"] == given_up
        assert grown < MAY_GROW
        assert process.num_fds() <= descriptors
