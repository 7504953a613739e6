"""Records that are damaged, cut or of others are dropped and counted, or a typed error; never a message."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import Traffic

from parllel.distributed.messaging import KafkaBroker, MemoryTransport, MessagingError, Record
from parllel.distributed.messaging.memory_transport import MemoryLog
from parllel.distributed.messaging.record_content import read_record

STEPS = 4


class TamperingTransport(MemoryTransport):
    """Hand out, after what was sent, what becomes of it in bad hands: damage, halves, and all of it again."""

    def __init__(self, seed: int, log: MemoryLog | None = None) -> None:
        super().__init__(log)
        self._random = random.Random(seed)
        self._kept: list[Record] = []

    def receive(self, timeout_s: float) -> list[Record]:
        records = super().receive(timeout_s)
        self._kept += records
        return records + [
            self._tampered(record) for record in self._random.choices(self._kept, k=len(records))
        ]

    def _tampered(self, record: Record) -> Record:
        content = bytearray(record.content)
        match self._random.randrange(5):
            case 0:
                content[self._random.randrange(len(content))] ^= 1 << self._random.randrange(8)
            case 1:
                del content[self._random.randrange(len(content)) :]
            case 2:
                content += bytes(content)
            case 3:
                content = bytearray(self._random.randbytes(self._random.randrange(100)))
            case 4:
                pass  # as it was, once more
        environment = self._random.choice(self._kept).environment
        return Record(record.kind, environment, bytes(content))


def step_or_reset(traffic: Traffic) -> None:
    try:
        traffic.step()
    except MessagingError as error:
        traffic.reset()
        if error.environment not in traffic.env_ids or error.step is None:
            raise


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_a_step_gets_its_own_messages_or_a_typed_error(seed):
    with KafkaBroker(transport=TamperingTransport(seed), timeout_s=1.0) as broker:
        traffic = Traffic(broker)
        for _ in range(STEPS):
            step_or_reset(traffic)
        broker.ledger.check()


@settings(max_examples=20)
@given(seeds=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)))
def test_what_becomes_of_one_run_does_not_reach_another(seeds):
    log = MemoryLog()
    brokers = [KafkaBroker(transport=TamperingTransport(seed, log)) for seed in seeds]
    traffics = [Traffic(broker, word=str(i)) for i, broker in enumerate(brokers)]
    for _ in range(STEPS):
        for traffic in traffics:
            step_or_reset(traffic)
    for broker in brokers:
        broker.ledger.check()
        assert broker.statistics()["foreign"] > 0
        broker.close()


@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_record_are_a_value_error(content):
    with pytest.raises(ValueError):
        read_record(content)
