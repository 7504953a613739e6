"""What holds over every broker: in memory, as references and as bytes, and over each Kafka broker here."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytest.importorskip("confluent_kafka")

from kafka_brokers import KINDS
from traffic import Traffic
from worlds import TREES, PlainWorld, World, draw_actions, make_agents

from parllel.distributed.messaging import KafkaBroker, VectorizedKafkaEnv
from parllel.distributed.wire import digest

TIMEOUT_S = 20.0
EVERY_KIND = ("references", "memory", *KINDS)
MakeBroker = Callable[..., KafkaBroker]


@pytest.fixture(params=EVERY_KIND)
def make_broker(
    request: pytest.FixtureRequest, broker_address: Callable[[str], str]
) -> Iterator[MakeBroker]:
    """A function that makes brokers of one kind, which share a server if they have one; all are closed."""
    with ExitStack() as stack:

        def make(**arguments: Any) -> KafkaBroker:
            if request.param in KINDS:
                address = broker_address(request.param)
                broker = KafkaBroker("kafka", bootstrap=address, timeout_s=TIMEOUT_S, **arguments)
            else:
                broker = KafkaBroker(encoded=request.param == "memory", **arguments)
            return stack.enter_context(broker)

        yield make


def test_runs_side_by_side_see_their_own_messages(make_broker):
    traffics = [Traffic(make_broker(), word=word) for word in ("one", "two", "three")]
    for number in range(4):
        for traffic in traffics:
            traffic.step()
        traffics[number % 3].reset()


def test_two_brokers_of_the_same_run_see_their_own_messages(make_broker):
    traffics = [Traffic(make_broker(run="same"), word=word) for word in ("one", "two")]
    for _ in range(3):
        for traffic in traffics:
            traffic.step()


def test_threads_with_a_broker_each_do_not_wait_for_each_other(make_broker):
    traffics = [Traffic(make_broker(), word=str(number)) for number in range(3)]
    failed: list[BaseException] = []

    def step(traffic: Traffic) -> None:
        try:
            for _ in range(5):
                traffic.step()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=step, args=(traffic,)) for traffic in traffics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [traffic.steps_done for traffic in traffics] == [5, 5, 5]


def test_renamed_and_reset_environments_leave_nothing_behind(make_broker):
    broker = make_broker()
    traffic = Traffic(broker, ["a", "b", "c"])
    traffic.step()
    for number in range(6):
        traffic.rename(number % 3, f"renamed {number}")
        traffic.step()
        traffic.rename(number % 3, "abc"[number % 3])  # an id that is taken again
        traffic.step()
        assert not broker.get_environment_topics(f"renamed {number}")


def test_a_message_of_an_earlier_epoch_or_taker_of_the_id_is_never_seen(make_broker):
    traffic = Traffic(make_broker(), ["a", "b"])
    for disturb in (traffic.reset, lambda: traffic.rename(0, "other"), traffic.reset):
        traffic.send_half()
        disturb()
        traffic.step()


def test_rollouts_are_those_of_plain_functions(make_broker):
    """Bit for bit, with subsets stepped and reset, under an id that is taken in the middle of an episode."""
    tree, n = TREES["several roots"], 4
    envs = VectorizedKafkaEnv(
        lambda env_id: make_agents(tree),
        list(tree),
        n,
        env_class=World,
        env_kwargs={"max_steps": 4},
        broker=make_broker(),
    )
    plain = [PlainWorld(tree, max_steps=4) for _ in range(n)]
    draws = np.random.default_rng(0)
    assert digest(envs.reset(seed=3)) == digest([one.reset(3 + i) for i, one in enumerate(plain)])
    for number in range(8):
        actions = [None if draws.random() < 0.3 else draw_actions(tree, draws) for _ in range(n)]
        results = envs.step_some(actions)
        for i, of_one in enumerate(actions):
            if of_one is None:
                continue
            expected = plain[i].step(of_one)
            assert digest([*results[i]]) == digest([*expected])
            if expected[3]:
                assert digest(envs.reset([i])) == digest([plain[i].reset()])
        envs.envs[number % n].set_env_id(f"renamed {number}")
    envs.close()


def test_closed_brokers_leave_no_threads_and_descriptors(make_broker):
    """Threads of the client library are its own: Python does not know of them."""

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def use() -> None:
        with make_broker() as broker:
            Traffic(broker, ["a"]).step()

    use()
    before = held()
    for _ in range(3):
        use()
    assert held() == before
