"""No interleaving of what runs and environments do shows one of them a message of another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from isolation_machine import IsolationMachine
from kafka_brokers import KINDS

from parllel.distributed.messaging import KafkaBroker, MemoryTransport
from parllel.distributed.messaging.delayed_transport import DelayedTransport
from parllel.distributed.messaging.memory_transport import MemoryLog


def references() -> Callable[[], KafkaBroker]:
    return lambda: KafkaBroker(encoded=False)


def memory() -> Callable[[], KafkaBroker]:
    log = MemoryLog()
    return lambda: KafkaBroker(transport=MemoryTransport(log))


def delayed() -> Callable[[], KafkaBroker]:
    log = MemoryLog()
    return lambda: KafkaBroker(transport=DelayedTransport(MemoryTransport(log), 0.003))


@pytest.mark.parametrize("kind", [references, memory, delayed])
@pytest.mark.few(1)
def test_in_memory(kind):
    run_state_machine_as_test(
        lambda: IsolationMachine(kind()),
        settings=settings(max_examples=30, deadline=None),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_over_kafka(kind, broker_address):
    pytest.importorskip("confluent_kafka")
    address = broker_address(kind)
    run_state_machine_as_test(
        lambda: IsolationMachine(lambda: KafkaBroker("kafka", bootstrap=address, timeout_s=20.0)),
        settings=settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck)),
    )
