"""What is done to a broker while messages are exchanged: they go on, or an error says where they stopped.

Each message is checked to be the one of its step; an error comes within the time-out; after it, the next
epoch goes through once the broker is well again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer
from foreign_records import put_foreign_records, records_of, topics_of
from ports import http_port, refusing_port, silent_port
from traffic import ENV_IDS, Traffic
from worlds import TREES, PlainWorld, World, draw_actions, make_agents

from parllel.distributed.messaging import (
    BrokerRefusedError,
    BrokerUnavailableError,
    KafkaBroker,
    MessageTooLargeError,
    MessagingError,
    VectorizedKafkaEnv,
)
from parllel.distributed.messaging.kafka.frame import frame, unframe
from parllel.distributed.wire import digest
from parllel.errors import WrongStateError
from parllel.testing import MockKafkaBroker

TIMEOUT_S = 3.0
# What a busy machine may add to a time-out.
PATIENCE_S = 15.0
RECOVERY_S = 30.0


def kafka(address: str, run: str | None = None, timeout_s: float = TIMEOUT_S) -> KafkaBroker:
    return KafkaBroker("kafka", bootstrap=address, run=run, timeout_s=timeout_s)


def step_or_error(traffic: Traffic) -> MessagingError | None:
    """Step once; return the error that was raised, which must say where, and come in time."""
    begun = time.monotonic()
    try:
        traffic.step()
        return None
    except MessagingError as error:
        said = str(error)
        assert any(repr(env_id) in said or env_id in said for env_id in ENV_IDS), said
        assert "step" in said, said
        assert "->" in said or "to" in said, said
        return error
    finally:
        assert time.monotonic() - begun < TIMEOUT_S + PATIENCE_S


def recover(traffic: Traffic) -> int:
    """Begin new epochs until a step goes through; return how many did not."""
    deadline = time.monotonic() + RECOVERY_S
    for failures in range(1000):
        traffic.reset()
        error = step_or_error(traffic)
        if error is None:
            return failures
        assert time.monotonic() < deadline, f"no step went through again: {error}"
    raise AssertionError


def step(traffic: Traffic, steps: int = 5) -> None:
    for _ in range(steps):
        traffic.step()


# ---------------------------------------------------------------- what steps get through


@pytest.mark.few(1)
def test_steps_go_on_over_connections_that_are_cut(disturbed):
    def cut(hop: int) -> None:
        if hop == 1:
            disturbed.proxy.cut()
        if hop == 2:
            disturbed.proxy.cut_after = 100  # within an answer

    with kafka(disturbed.address, timeout_s=20.0) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        connections = disturbed.proxy.connections
        traffic.between = cut
        step(traffic, 2)
        assert disturbed.proxy.connections > connections


@pytest.mark.few(1)
def test_steps_go_on_over_a_slow_network(disturbed):
    with kafka(disturbed.address, timeout_s=20.0) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        disturbed.proxy.delay_s = 0.05
        begun = time.monotonic()
        step(traffic, 4)
        # Each hop of a step goes there and back.
        assert time.monotonic() - begun >= 4 * len(traffic.hops) * 2 * 0.05


@pytest.mark.few(1)
def test_steps_go_on_after_a_broker_was_stopped_for_less_than_the_time_out(disturbed):
    with kafka(disturbed.address, timeout_s=20.0) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        disturbed.pause()
        timer = threading.Timer(1.5, disturbed.resume)
        timer.start()
        step(traffic, 3)
        timer.join()


# ---------------------------------------------------------------- what takes longer than the time-out


@pytest.mark.few(1)
def test_a_broker_that_is_stopped_for_five_seconds_is_used_again(disturbed):
    with kafka(disturbed.address) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        disturbed.pause()
        timer = threading.Timer(5.0, disturbed.resume)
        timer.start()
        assert step_or_error(traffic) is not None
        timer.join()
        recover(traffic)
        step(traffic)


@pytest.mark.few(1)
def test_a_broker_that_is_killed_and_restarted_empty_is_used_again(disturbed):
    with kafka(disturbed.address) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        disturbed.kill()
        assert step_or_error(traffic) is not None
        disturbed.start()
        recover(traffic)
        step(traffic)
        disturbed.kill()
        disturbed.start()  # before anything was sent
        if step_or_error(traffic) is not None:
            recover(traffic)
        step(traffic)


@pytest.mark.few(1)
def test_a_broker_that_is_killed_between_send_and_receive_leaves_no_step_half_done(disturbed):
    with kafka(disturbed.address) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        restarted = []

        def restart(hop: int) -> None:
            if hop == 2 and not restarted:
                restarted.append(hop)
                disturbed.kill()
                disturbed.start()

        traffic.between = restart
        if step_or_error(traffic) is not None:
            recover(traffic)
        assert restarted
        step(traffic)


@pytest.mark.few(1)
def test_a_network_that_swallows_everything_is_an_error_at_the_time_out(disturbed):
    with kafka(disturbed.address) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        disturbed.proxy.stalled = True
        assert step_or_error(traffic) is not None
        disturbed.proxy.stalled = False
        recover(traffic)
        step(traffic)


@pytest.mark.few(1)
def test_a_broker_closes_in_time_while_its_server_is_away(disturbed):
    with kafka(disturbed.address) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        disturbed.kill()
        begun = time.monotonic()
    assert time.monotonic() - begun < TIMEOUT_S + PATIENCE_S


@pytest.mark.few(1)
def test_environments_go_on_after_a_restart_with_the_episodes_they_would_have_had(disturbed):
    tree, n = TREES["grid"], 3
    with kafka(disturbed.address) as broker:
        envs = VectorizedKafkaEnv(
            lambda env_id: make_agents(tree), list(tree), n, env_class=World, broker=broker
        )
        actions = [draw_actions(tree, np.random.default_rng(i)) for i in range(n)]
        envs.reset(seed=0)
        envs.step(actions)
        disturbed.kill()
        with pytest.raises(BrokerUnavailableError, match=r"'rollout_0', action .* step 1"):
            envs.step(actions)
        with pytest.raises(WrongStateError, match="rollout_0"):
            envs.step(actions)  # never half of a step, then the rest
        disturbed.start()
        deadline = time.monotonic() + RECOVERY_S
        while True:
            observations = [envs.reset(seed=0)]
            try:
                observations += [envs.step(actions)[0] for _ in range(3)]
                break
            except BrokerUnavailableError:
                assert time.monotonic() < deadline
        plain = [PlainWorld(tree) for _ in range(n)]
        expected = [[one.reset(i) for i, one in enumerate(plain)]]
        expected += [
            [one.step(of_one)[0] for one, of_one in zip(plain, actions, strict=True)]
            for _ in range(3)
        ]
        assert digest(observations) == digest(expected)
        envs.close()


# ---------------------------------------------------------------- at the start


@pytest.mark.few(1)
def test_a_broker_that_is_down_at_the_start_is_an_error_and_can_be_used_later(disturbed):
    disturbed.kill()
    begun = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=disturbed.address):
        kafka(disturbed.address)
    assert time.monotonic() - begun < TIMEOUT_S + PATIENCE_S
    disturbed.start()
    with kafka(disturbed.address, timeout_s=20.0) as broker:
        step(Traffic(broker), 1)


@pytest.mark.parametrize(
    ("port", "error"),
    [
        (refusing_port, BrokerUnavailableError),
        (silent_port, BrokerUnavailableError),
        (http_port, BrokerRefusedError),  # time would not mend it
    ],
)
def test_a_port_that_is_not_kafkas_is_an_error_within_the_time_out(port, error):
    with port() as address:
        begun = time.monotonic()
        with pytest.raises(error, match=address):
            kafka(address, timeout_s=2.0)
        assert time.monotonic() - begun < 2.0 + PATIENCE_S


def test_a_broker_without_idempotent_producers_is_refused():
    with MockKafkaBroker() as server:
        server.command("versions 22 -1 -1")
        with pytest.raises(BrokerRefusedError, match=server.address):
            kafka(server.address)


def test_a_broker_that_refuses_the_topics_is_refused():
    with MockKafkaBroker() as server:
        with kafka(server.address, "refused") as broker:
            step(Traffic(broker), 1)
        topics = topics_of(server.address, "refused")
        assert topics
    with MockKafkaBroker() as server:
        for topic in topics:
            server.command(f"refuse-topic {topic} 29")  # TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(BrokerRefusedError, match=server.address):
            kafka(server.address, "refused")


# ---------------------------------------------------------------- errors of the protocol


PRODUCE, FETCH = 0, 1


@pytest.mark.parametrize(
    ("request_kind", "code"),
    [
        (PRODUCE, 19),  # NOT_ENOUGH_REPLICAS
        (PRODUCE, 7),  # REQUEST_TIMED_OUT
        (PRODUCE, 6),  # NOT_LEADER_FOR_PARTITION
        (PRODUCE, 45),  # OUT_OF_ORDER_SEQUENCE_NUMBER
        (PRODUCE, 59),  # UNKNOWN_PRODUCER_ID
        (PRODUCE, 47),  # INVALID_PRODUCER_EPOCH
        (PRODUCE, 90),  # PRODUCER_FENCED
        (FETCH, 6),
        (FETCH, 1),  # OFFSET_OUT_OF_RANGE
        (FETCH, -1),  # UNKNOWN_SERVER_ERROR
    ],
)
@pytest.mark.few(5)
def test_an_error_of_the_server_is_recovered_from(request_kind, code):
    with MockKafkaBroker() as server, kafka(server.address, timeout_s=10.0) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        server.command(f"errors {request_kind} {code} 2")
        step(traffic, 3)


def test_a_send_that_is_refused_for_good_is_an_error():
    with MockKafkaBroker() as server, kafka(server.address) as broker:
        traffic = Traffic(broker)
        step(traffic, 2)
        server.command(f"errors {PRODUCE} 29 1000")
        assert step_or_error(traffic) is not None


# ---------------------------------------------------------------- foreign and too large messages


def test_foreign_bytes_on_the_topics_of_a_run_are_counted_and_left_out(kafka_address):
    with ExitStack() as stack:
        ours = stack.enter_context(kafka(kafka_address, timeout_s=20.0))
        theirs = stack.enter_context(kafka(kafka_address, timeout_s=20.0))
        traffic, other = Traffic(ours, word="ours"), Traffic(theirs, word="theirs")
        for _ in range(2):
            traffic.step()
            other.step()
        copied = records_of(kafka_address, theirs.run, 5) + records_of(kafka_address, ours.run, 5)
        assert put_foreign_records(kafka_address, ours.run, copied) > 100
        step(traffic, 2)
        traffic.reset()
        step(traffic, 2)
        step(other, 2)


def test_a_forged_record_with_the_numbers_of_the_next_one_is_refused(kafka_address):
    with kafka(kafka_address, timeout_s=20.0) as broker:
        traffic = Traffic(broker, word="ours")
        step(traffic, 1)
        key, value = next(
            record for record in records_of(kafka_address, broker.run, 12) if b"ours" in record[1]
        )
        session, number, content = unframe(value)
        forger = Producer({"bootstrap.servers": kafka_address, "linger.ms": 0, "log_level": 0})

        def forge(hop: int) -> None:
            for topic in topics_of(kafka_address, broker.run):
                for later in range(number, number + 100):
                    forged = frame(session, later, content.replace(b"ours", b"evil"))
                    forger.produce(topic, forged, key, 0)
            assert forger.flush(20.0) == 0

        traffic.between = forge
        step(traffic, 2)
        assert broker.statistics()["transport_forged"] > 0


def test_a_message_that_is_too_large_is_refused_and_the_next_one_goes_through(kafka_address):
    with kafka(kafka_address, timeout_s=20.0) as broker:
        traffic = Traffic(broker)
        step(traffic, 1)
        (_, channel), *_ = traffic.hops[0]
        broker.begin_step(traffic.env_ids, [1] * len(traffic.env_ids))
        with pytest.raises(MessageTooLargeError, match=r"bytes"):
            channel.put({"blob": b"x" * 50_000_000})
        traffic.reset()
        step(traffic, 2)


# ---------------------------------------------------------------- other clients


@pytest.mark.few(1)
def test_a_client_that_was_stopped_goes_on(kafka_address):
    command = [sys.executable, Path(__file__).with_name("traffic.py"), kafka_address]
    # Stopped for longer than its time-out, wherever it is; the broker is well all the time.
    command += [f"stopped-{uuid.uuid4().hex}", "3"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        try:
            for _ in range(2):
                for _ in range(20):
                    assert client.stdout.readline(), client.stderr.read()
                client.send_signal(signal.SIGSTOP)
                time.sleep(4.5)
                client.send_signal(signal.SIGCONT)
            for _ in range(20):
                assert client.stdout.readline(), client.stderr.read()
        finally:
            client.kill()


def test_a_client_that_is_killed_leaves_the_others_running(kafka_address):
    script = Path(__file__).with_name("traffic.py")
    with kafka(kafka_address, timeout_s=20.0) as broker:
        traffic = Traffic(broker)
        step(traffic, 1)
        other = subprocess.Popen(
            [sys.executable, script, kafka_address, "to-be-killed"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            for _ in range(3):
                assert other.stdout.readline()
                traffic.step()
        finally:
            os.kill(other.pid, signal.SIGKILL)
            other.communicate()
        step(traffic, 3)
        # A run that is begun again by the same name has nothing of the earlier one.
        with kafka(kafka_address, "to-be-killed", timeout_s=20.0) as again:
            step(Traffic(again, word="again"), 3)
