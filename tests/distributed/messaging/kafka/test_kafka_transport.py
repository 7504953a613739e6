"""The transport over each broker; what happens when brokers fail is in test_kafka_faults.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from parllel.distributed.messaging import (
    BrokerRefusedError,
    BrokerUnavailableError,
    MessageTooLargeError,
)
from parllel.distributed.messaging.kafka import KafkaTransport
from parllel.distributed.messaging.kafka.frame import frame
from parllel.distributed.messaging.kafka.run_topics import run_topics, sessions_topic
from parllel.distributed.messaging.transport import HOSTS, Record
from parllel.errors import ClosedError, WrongStateError
from parllel.testing import MockKafkaBroker

TIMEOUT_S = 20.0


@pytest.fixture
def run():
    return f"run-{uuid.uuid4().hex}"


def hop_of(kind, number, n=20):
    return [Record(kind, b"env%d" % index, b"%d of %d" % (number, index)) for index in range(n)]


def sent(transport, records):
    deadline = time.monotonic() + TIMEOUT_S
    transport.send_hop(records, deadline)
    return received(transport, len(records), deadline)


def received(transport, n, deadline):
    found = []
    while len(found) < n and time.monotonic() < deadline:
        found += transport.receive(deadline - time.monotonic())
    return found


def topics_of(address):
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics)


def by_environment(records):
    found = {}
    for record in records:
        found.setdefault((record.kind, record.environment), []).append(record.content)
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_hops_come_back_in_order_and_once(kafka_address, run, partitions):
    with KafkaTransport(
        kafka_address, run, partitions=partitions, timeout_s=TIMEOUT_S
    ) as transport:
        for number in range(10):
            hop = hop_of(("action", "info", "broadcast")[number % 3], number)
            assert by_environment(sent(transport, hop)) == by_environment(hop)
        hops = [hop_of("info", number) for number in range(5)]
        records = [record for hop in hops for record in hop]
        found = sent(transport, records)
        assert by_environment(found) == by_environment(records)
        assert transport.receive(0.1) == []
        assert set(transport.statistics().values()) == {0}


def test_transports_of_one_run_see_their_own_alone(kafka_address, run):
    first = KafkaTransport(kafka_address, run, timeout_s=TIMEOUT_S)
    with first, KafkaTransport(kafka_address, run, timeout_s=TIMEOUT_S) as second:
        for number in range(3):
            mine, others = hop_of("action", number), hop_of("action", 100 + number)
            second.send_hop(others, time.monotonic() + TIMEOUT_S)
            assert sent(first, mine) == mine
            assert received(second, len(others), time.monotonic() + TIMEOUT_S) == others
        assert second.statistics()["foreign"] >= 40


class Overtaken:
    """A consumer of a broker that shows a record only after others behind it, the first few times."""

    def __init__(self, consumer, content, times):
        self._consumer, self._content, self.left = consumer, content, times

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def consume(self, n, timeout_s):
        return [one for one in self._consumer.consume(n, timeout_s) if self._shows(one)]

    def poll(self, timeout_s):
        message = self._consumer.poll(timeout_s)
        return message if message is None or self._shows(message) else None

    def _shows(self, message):
        hidden = self.left > 0 and (message.value() or b"").endswith(self._content)
        self.left -= hidden
        return not hidden


@pytest.mark.parametrize(("times", "lost"), [(3, []), (10**9, [7])])
def test_a_record_that_others_overtake_is_waited_for(kafka_address, run, times, lost):
    options = {"timeout_s": TIMEOUT_S, "hosts": True}
    with (
        KafkaTransport(kafka_address, run, **options) as writer,
        KafkaTransport(kafka_address, run, **options) as reader,
    ):
        connection = reader._connection
        connection._consumer = Overtaken(connection._consumer, b"1 of 7", times)
        hop = hop_of("action", 1)
        deadline = time.monotonic() + TIMEOUT_S
        writer.send_hop(hop, deadline)
        found = []
        while len(found) < len(hop) - len(lost) and time.monotonic() < deadline:
            reader.receive(0.1)
            found += [other.record for other in reader.take_others()]
    assert found == [record for i, record in enumerate(hop) if i not in lost]


def test_what_others_put_into_the_topics_is_counted_and_dropped(kafka_address, run):
    with KafkaTransport(kafka_address, run, timeout_s=TIMEOUT_S) as transport:
        producer = Producer({"bootstrap.servers": kafka_address})
        foreign = [b"", None, b"x" * 27, b"\0" * 100, frame(b"another session!", 1, b"hello")]
        for value in foreign:
            producer.produce(run_topics(run)["info"], value, b"env1", partition=0)
        assert producer.flush(10) == 0
        hop = hop_of("info", 1)
        assert sent(transport, hop) == hop
        assert transport.statistics()["foreign"] == len(foreign)


def test_yesterdays_records_are_not_read(kafka_address, run):
    with KafkaTransport(kafka_address, run, timeout_s=TIMEOUT_S, keep_topics=True) as transport:
        transport.send_hop(hop_of("info", 1), time.monotonic() + TIMEOUT_S)
        received(transport, 20, time.monotonic() + TIMEOUT_S)
    with KafkaTransport(kafka_address, run, timeout_s=TIMEOUT_S) as transport:
        hop = hop_of("info", 2)
        assert sent(transport, hop) == hop
        assert transport.statistics()["foreign"] == 0


def test_topics_that_were_made_are_deleted(broker_address, run):
    address = broker_address("tansu")
    with KafkaTransport(address, run, timeout_s=TIMEOUT_S):
        assert set(run_topics(run).values()) <= topics_of(address)
    assert not set(run_topics(run).values()) & topics_of(address)
    with KafkaTransport(address, run, timeout_s=TIMEOUT_S, keep_topics=True):
        pass
    # Those that another keeps stay.
    KafkaTransport(address, run, timeout_s=TIMEOUT_S).close()
    assert set(run_topics(run).values()) <= topics_of(address)


def test_topics_are_deleted_though_records_were_on_their_way(broker_address, run):
    address = broker_address("tansu")
    for number in range(3):
        with KafkaTransport(address, f"{run}-{number}", timeout_s=TIMEOUT_S) as transport:
            transport.send_hop(hop_of("info", 0, n=200), time.monotonic() + TIMEOUT_S)
    assert not [topic for topic in topics_of(address) if run in topic]


def test_topics_stay_while_another_session_uses_them(broker_address, run):
    address = broker_address("tansu")
    first = KafkaTransport(address, run, timeout_s=TIMEOUT_S)
    second = KafkaTransport(address, run, timeout_s=TIMEOUT_S)
    assert sent(second, hop_of("info", 0)) == hop_of("info", 0)
    first.close()
    for number in range(1, 4):
        assert sent(second, hop_of("info", number)) == hop_of("info", number)
    assert second.statistics()["reconnected"] == 0
    second.close()
    # The second made none of them, and is the last that used them.
    assert not [topic for topic in topics_of(address) if run in topic]


HELD = """
import sys, time
from parllel.distributed.messaging.kafka import KafkaTransport
transport = KafkaTransport(sys.argv[1], sys.argv[2], timeout_s=20.0)
print("open", flush=True)
time.sleep(60)
"""


def test_a_session_that_was_killed_keeps_no_topics(broker_address, run):
    address = broker_address("tansu")
    command = [sys.executable, "-c", HELD, address, run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "open\n"
            # It made the topics, and lives.
            KafkaTransport(address, run, timeout_s=TIMEOUT_S).close()
            assert set(run_topics(run).values()) <= topics_of(address)
        finally:
            child.kill()
    KafkaTransport(address, run, timeout_s=TIMEOUT_S).close()
    assert not [topic for topic in topics_of(address) if run in topic]


def test_what_others_say_of_sessions_deletes_nothing(broker_address, run):
    address = broker_address("tansu")
    other = f"{run}-other"
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
    with KafkaTransport(address, other, timeout_s=TIMEOUT_S):
        with KafkaTransport(address, run, timeout_s=TIMEOUT_S):
            lie = {"session": "x", "leaves": True, "keeps": False, "process": None}
            lie["made"] = list(run_topics(other).values())
            for content in (b"", b"{}", b"\xff", b"[1]", json.dumps(lie).encode()):
                producer.produce(sessions_topic(run), content)
            assert producer.flush(TIMEOUT_S) == 0
        assert not [topic for topic in topics_of(address) if f"{run}." in topic]
        assert set(run_topics(other).values()) <= topics_of(address)


def test_large_records_pass_and_larger_ones_are_refused(kafka_address, run):
    # The mock cluster keeps 5 MB of a partition.
    with KafkaTransport(kafka_address, run, max_bytes=2_000_000, timeout_s=TIMEOUT_S) as transport:
        hop = [Record("info", b"%d" % index, os.urandom(2_000_000)) for index in range(2)]
        assert sent(transport, hop) == hop
        large = Record("action", b"env7", bytes(2_000_001))
        with pytest.raises(
            MessageTooLargeError,
            match=r"b'env7' \(action\): expected at most 2000000 bytes, got 2000001",
        ):
            transport.send_hop([hop[0], large], time.monotonic() + TIMEOUT_S)
        # None of them went.
        assert transport.statistics()["in_flight"] == 0


def test_a_record_refused_while_others_are_given_up_is_not_forgotten(run):
    class Lock:
        """Have another thread, which sends, learn of a refusal when the first is released."""

        def __enter__(self):
            assert lock.acquire(timeout=TIMEOUT_S)

        def __exit__(self, *error):
            if len(transport._window) == 1 and not refused:
                refused.append(2)
                transport._connection.too_large.append(2)
            lock.release()

    refused = []
    with MockKafkaBroker() as broker, KafkaTransport(broker.address, run) as transport:
        lock, transport._lock = transport._lock, Lock()
        # Never sent, so nothing comes back but the refusals below.
        for content in (b"1", b"22"):
            transport._window.add(Record("info", b"env1", content), ("info", 0))
        transport._connection.too_large.append(1)
        for size in (1, 2):
            with pytest.raises(MessageTooLargeError, match=f"records of up to {size} bytes"):
                transport.receive(0.0)
        assert transport.statistics()["in_flight"] == 0
        transport._lock = lock


def test_a_process_may_have_some_of_the_partitions(kafka_address, run):
    with KafkaTransport(
        kafka_address, run, partitions=2, assigned=[1], timeout_s=TIMEOUT_S
    ) as transport:
        taken, refused = [], []
        for record in hop_of("info", 1):
            try:
                taken += sent(transport, [record])
            except ValueError:
                refused.append(record)
        assert sorted(taken + refused) == sorted(hop_of("info", 1))
        assert taken
        with pytest.raises(
            ValueError, match=r"belongs to partition 0, but this process is assigned \(1,\)"
        ):
            transport.send_hop(refused[:1], time.monotonic() + TIMEOUT_S)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"partitions": 0}, ValueError, "partitions: expected 1 to"),
        ({"partitions": True}, TypeError, "partitions: expected an int"),
        (
            {"partitions": 2, "assigned": [2]},
            ValueError,
            "assigned: expected partitions from 0 to 1",
        ),
        ({"partitions": 2, "assigned": []}, ValueError, "assigned: expected partitions"),
        (
            {"config": {"no.such": "x"}},
            ValueError,
            r'config: No such configuration property: "no.such"',
        ),
        ({"config": {"security.protocol": "x"}}, ValueError, "config: .*security.protocol"),
    ],
)
def test_arguments_are_checked_before_the_broker_is_asked(arguments, error, said):
    with pytest.raises(error, match=said):
        KafkaTransport("127.0.0.1:1", "run", timeout_s=0.2, **arguments)


def test_after_close_it_says_so(kafka_address, run):
    transport = KafkaTransport(kafka_address, run, timeout_s=TIMEOUT_S)
    transport.close()
    transport.close()
    with pytest.raises(ClosedError, match="KafkaTransport: used after it was closed"):
        transport.send_hop([], time.monotonic())
    with pytest.raises(ClosedError, match="KafkaTransport: used after it was closed"):
        transport.receive(0.1)


def test_a_child_that_was_forked_is_to_have_its_own(run, monkeypatch):
    with MockKafkaBroker() as broker, KafkaTransport(broker.address, run) as transport:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            with pytest.raises(WrongStateError, match="before the process was forked"):
                transport.send_hop(hop_of("info", 1), time.monotonic() + TIMEOUT_S)
        assert sent(transport, hop_of("info", 2)) == hop_of("info", 2)


def test_a_sign_of_life_in_flight_explains_nothing(run):
    beat, hop = Record(HOSTS, b"", b"beat"), hop_of("info", 1, n=1)
    with (
        MockKafkaBroker() as broker,
        KafkaTransport(broker.address, run, hosts=True, timeout_s=TIMEOUT_S) as transport,
    ):
        # In flight until somebody calls `receive`.
        transport.send_hop([beat], time.monotonic() + TIMEOUT_S)
        assert transport.trouble() == ""
        transport.send_hop(hop, time.monotonic() + TIMEOUT_S)
        assert re.match("broker .*: 2 records did not come back", transport.trouble())
        assert len(received(transport, 2, time.monotonic() + TIMEOUT_S)) == 2
        broker.close()
        # Unless the connection reports an error as well.
        transport.send_hop([beat], time.monotonic() + 1.0)
        assert transport.receive(2.0) == []
        assert re.match("broker .*: 1 records did not come back .*refused", transport.trouble())


def test_nothing_is_printed(run, capfd):
    with MockKafkaBroker() as broker:
        transport = KafkaTransport(broker.address, run, timeout_s=TIMEOUT_S)
    transport.send_hop([Record("info", b"e", b"x")], time.monotonic() + 0.5)
    assert transport.receive(0.6) == []
    assert re.match("broker .*: 1 records did not come back .*refused", transport.trouble())
    transport.close()
    with pytest.raises(BrokerUnavailableError, match=r"no answer from a broker within .*refused"):
        KafkaTransport(broker.address, run, timeout_s=0.5)
    assert capfd.readouterr() == ("", "")


def test_too_few_partitions_are_refused(run):
    with MockKafkaBroker() as broker:
        broker.command(f"topic {run_topics(run)['info']} 2")
        with pytest.raises(
            BrokerRefusedError, match=r"info': expected at least 3 partitions, got 2"
        ):
            KafkaTransport(broker.address, run, partitions=3, timeout_s=TIMEOUT_S)


def test_a_login_that_fails_is_refused_at_once_and_the_password_is_not_said(run):
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "hush"}
    config = {"security.protocol": "sasl_plaintext", **login}
    refused = pytest.raises(BrokerRefusedError, match="SASL Handshake not supported")
    with MockKafkaBroker() as broker, refused as caught:
        KafkaTransport(broker.address, run, timeout_s=TIMEOUT_S, config=config)
    assert "hush" not in str(caught.value)
