from __future__ import annotations

import gc
import re
import threading
import time

import numpy as np
import pytest

from parllel.distributed.messaging import (
    BrokerUnavailableError,
    DuplicateActionError,
    KafkaBroker,
    KafkaMessage,
    MemoryTransport,
    MessageTooLargeError,
    MessageType,
    MissingMessageError,
    QueueOverflowError,
    SequenceGapError,
    TopicManager,
    delivery,
)
from parllel.distributed.messaging.delayed_transport import DelayedTransport
from parllel.distributed.messaging.memory_transport import MemoryLog
from parllel.distributed.messaging.record_content import read_record
from parllel.distributed.wire import WireError
from parllel.errors import ClosedError, WrongStateError

ENV = "rollout_0"
ACTION = TopicManager.action_topic("grid1", "device1", ENV)
INFO = TopicManager.info_topic("device1", "grid1", ENV)
SPOKEN = TopicManager.broadcast_topic("grid1", ENV)


def message(env_id=ENV, sender="grid1", to="device1", kind=MessageType.ACTION, time=0.0, **payload):
    return KafkaMessage(env_id, sender, to, time, kind, payload)


def info(**payload):
    return message(sender="device1", to="grid1", kind=MessageType.INFO, **payload)


def numbers(messages):
    return [one.payload["n"] for one in messages]


def consume(broker, topic=ACTION, agent="device1", env_id=ENV, **how):
    return broker.consume(topic, agent, env_id, **how)


@pytest.fixture(params=[True, False], ids=["encoded", "references"])
def broker(request):
    with KafkaBroker(encoded=request.param, timeout_s=0.2, capacity=4) as broker:
        yield broker
        broker.ledger.check()


def test_messages_arrive_in_order_and_once(broker):
    for n in range(3):
        broker.publish(ACTION, message(n=n))
    assert numbers(consume(broker, clear=False)) == [0, 1, 2]
    got = consume(broker)
    assert numbers(got) == [0, 1, 2]
    assert [one.sequence for one in got] == [0, 1, 2]
    assert consume(broker) == []


def test_a_published_message_is_stamped(broker):
    first, second = message(n=0), message(n=1)
    broker.join(ENV)
    broker.clear_environment(ENV)
    broker.publish(ACTION, first)
    broker.begin_step([ENV], [7])
    broker.publish(ACTION, second)
    stamps = [(one.lease, one.epoch, one.step, one.sequence) for one in (first, second)]
    assert stamps == [(1, 1, None, 0), (1, 1, 7, 1)]
    assert consume(broker) == [second]  # the first is an action of an earlier step


def test_channels_carry_what_topics_do(broker):
    channel = broker.channel(ACTION)
    for step in range(3):
        broker.begin_step([ENV], [step])
        channel.put({"n": step}, 0.5)
        broker.await_messages([channel])
        got = channel.take()
        assert (got.payload, got.step, got.sequence) == ({"n": step}, step, step)
    broker.publish(INFO, info(n=3))
    assert broker.take_payloads([broker.channel(INFO)]) == [{"n": 3}]


def test_payloads_are_copies_unless_references_were_asked_for(broker):
    array = np.zeros(3)
    broker.publish(ACTION, message(n=array))
    array[0] = 1.0
    (got,) = consume(broker)
    assert (got.payload["n"] is array) == (not broker.encoded)
    if broker.encoded:
        np.testing.assert_array_equal(got.payload["n"], np.zeros(3))


def test_plain_names_are_channels_of_their_environment(broker):
    for n, (env_id, sender, to) in enumerate(
        [("a", "x", "z"), ("b", "x", "z"), ("a", "y", "z"), ("a", "x", "w")]
    ):
        broker.publish(str(ACTION) + "!", message(env_id, sender, to, time=-n, n=n))
    assert numbers(consume(broker, str(ACTION) + "!", "z", "a")) == [2, 0]
    assert numbers(consume(broker, str(ACTION) + "!", "z", "b")) == [1]
    assert numbers(consume(broker, str(ACTION) + "!", "w", "a")) == [3]


def test_a_plain_name_spelt_like_a_topic_is_another(broker):
    name = str.__str__(ACTION) + ""
    broker.publish("".join(name), message(n=0))
    assert consume(broker) == []
    assert numbers(consume(broker, "".join(name))) == [0]
    assert broker.get_environment_topics(ENV) == ["".join(name)]


def test_a_reset_drops_what_was_sent_and_keeps_topics(broker):
    channel = broker.channel(ACTION)
    channel.put({"n": 0})
    broker.flush()
    channel.put({"n": 1})
    broker.clear_environment(ENV)
    channel.put({"n": 2})
    got = consume(broker)
    assert (numbers(got), got[0].epoch, got[0].sequence) == ([2], 1, 0)
    assert broker.ledger.counts()["cleared"] == 2


def test_an_id_that_is_taken_again_is_another_environment(broker):
    first = broker.join(ENV)
    with pytest.raises(WrongStateError, match="'rollout_0' is in use"):
        broker.join(ENV)
    old = broker.channel(ACTION)
    old.put({"n": 0})
    broker.subscribe(ACTION, pytest.fail)
    broker.leave(ENV)
    assert broker.get_environment_topics(ENV) == []
    broker.publish(ACTION, message(n=1))  # late, by someone who does not know
    assert broker.join(ENV) > first
    assert consume(broker) == []
    with pytest.raises(ClosedError, match="the environment has left"):
        old.put({"n": 2})
    with pytest.raises(ClosedError, match="the environment has left"):
        old.take()


def test_a_step_has_one_action_for_each_agent(broker):
    broker.begin_step([ENV], [3])
    broker.publish(ACTION, message(n=np.arange(3)))
    broker.publish(ACTION, message(n=np.arange(3)))
    with pytest.raises(DuplicateActionError, match="got a second one that differs") as caught:
        broker.publish(ACTION, message(n=np.arange(4)))
    assert (caught.value.environment, caught.value.step) == (ENV, 3)
    assert broker.statistics()["duplicates"] == 1
    assert len(consume(broker)) == 1


def test_an_action_that_did_not_fit_may_be_sent_again(broker):
    for n in range(4):
        broker.publish(ACTION, message(n=n))
    broker.begin_step([ENV], [0])
    with pytest.raises(QueueOverflowError, match=r"4 messages, .* have not been consumed"):
        broker.publish(ACTION, message(n=4))
    consume(broker)
    broker.publish(ACTION, message(n=4))
    assert numbers(consume(broker)) == [4]


def test_of_a_latest_topic_the_last_message_alone_is_kept(broker):
    broker.create_topic(ACTION, latest=True)
    broker.create_topic("news", latest=True)
    broker.begin_step([ENV], [0])
    for n in range(20):
        broker.publish(ACTION, message(n=n))
        broker.publish("news", message(n=n))
    assert numbers(consume(broker)) == numbers(consume(broker, "news")) == [19]
    assert broker.ledger.counts()["overwritten"] == 38


def test_late_messages_do_not_pass_for_those_of_the_step(broker):
    channel = broker.channel(ACTION)
    broker.begin_step([ENV], [0])
    channel.put({"n": 0})
    broker.begin_step([ENV], [1])
    with pytest.raises(MissingMessageError, match=r"'device1', step 1: .*message 1"):
        broker.await_messages([channel])
    assert broker.ledger.counts()["late"] == 1
    channel.put({"n": 1})
    assert broker.take_payloads([channel]) == [{"n": 1}]
    with pytest.raises(ValueError, match="expected a step from 1 on, got 0"):
        broker.begin_step([ENV], [0])


def test_late_and_replaced_messages_of_an_epoch_are_counted_once(broker):
    broker.create_topic(INFO, latest=True)
    channel, newest = broker.channel(ACTION), broker.channel(INFO)
    for epoch in range(1, 4):
        for step in (1, 2):
            broker.begin_step([ENV], [step])
            channel.put({"n": step})
            newest.put({"n": step})
        broker.await_messages([channel, newest])
        assert channel.counts() == (2, 0, 1, 0)
        assert newest.counts() == (2, 0, 0, 1)
        broker.clear_environment(ENV)
        counts = broker.ledger.counts()
        assert (counts["late"], counts["overwritten"]) == (epoch, epoch)
        broker.ledger.check()


def test_a_missing_message_is_named(broker):
    channels = [broker.channel(ACTION), broker.channel(INFO)]
    broker.begin_step([ENV], [5])
    channels[1].put({})
    with pytest.raises(MissingMessageError, match="environment 'rollout_0', action") as caught:
        broker.await_messages(channels, time.monotonic() + 0.05)
    assert (caught.value.environment, caught.value.step) == (ENV, 5)
    with pytest.raises(MissingMessageError, match="call await_messages first"):
        channels[0].take()


def test_broadcasts_go_to_the_subscribers_of_that_moment(broker):
    heard = []
    spoken = {"kind": MessageType.BROADCAST, "to": "all"}
    broker.publish(SPOKEN, message(**spoken, n=0))
    broker.subscribe(SPOKEN, agent_id="b")
    stop = broker.subscribe(SPOKEN, heard.append)
    broker.publish(SPOKEN, message(**spoken, n=1))
    end = broker.subscribe(SPOKEN, agent_id="c")
    broker.publish(SPOKEN, message(**spoken, n=2))
    stop()
    end()
    broker.publish(SPOKEN, message(**spoken, n=3))
    broker.subscribe(SPOKEN, agent_id="c")
    assert numbers(heard) == [1, 2]
    assert numbers(consume(broker, SPOKEN, "b")) == [1, 2, 3]
    assert numbers(consume(broker, SPOKEN, "c")) == [2]
    with pytest.raises(ValueError, match="'d' has not subscribed"):
        consume(broker, SPOKEN, "d")


def test_callbacks_may_come_before_the_first_message_and_fail_alone(broker, caplog):
    seen = []

    def fail(_):
        raise RuntimeError("mine")

    def pass_on(one):
        seen.append(one.payload["n"])
        if one.payload["n"] == 0:
            broker.publish(INFO, info(n="from a callback"))

    broker.subscribe(ACTION, fail)
    broker.subscribe(ACTION, pass_on)
    for n in range(3):
        broker.publish(ACTION, message(n=n))
    assert seen == [0, 1, 2]
    assert numbers(consume(broker, INFO, "grid1")) == ["from a callback"]
    assert broker.statistics()["callback_failures"] == 3
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert numbers(consume(broker)) == [0, 1, 2]


def test_callbacks_of_a_plain_name_see_all_environments_until_they_end(broker):
    seen = []
    end = broker.subscribe("news", lambda one: seen.append(one.env_id))
    for env_id in ("a", "b"):
        broker.publish("news", message(env_id))
    end()
    broker.publish("news", message("a"))
    assert seen == ["a", "b"]


def test_a_tap_sees_and_consumes_nothing(broker):
    with broker.tap(["a"], capacity=2) as tap:
        for n in range(3):
            broker.publish("news", message("a", n=n))
            broker.publish("news", message("b", n=n))
        broker.flush()
        assert (numbers(tap.take()), tap.seen, tap.dropped) == ([1, 2], 3, 1)
    consume(broker, "news", "device1", "a")
    broker.publish("news", message("a", n=3))
    broker.flush()
    assert tap.take() == []


def test_a_tap_that_is_closed_during_a_message_hides_it_from_no_other(broker):
    closing, other = broker.tap(), broker.tap()
    # As another thread may do at that moment.
    closing.offer = lambda message: closing.close()
    broker.publish("news", message("a", n=0))
    broker.flush()
    assert numbers(other.take()) == [0]
    consume(broker, "news", "device1", "a")


def test_states_take_messages_along(broker):
    broker.join(ENV)
    broker.clear_environment(ENV)
    broker.begin_step([ENV], [4])
    broker.publish(INFO, info(n=0))
    broker.publish(INFO, info(n=1))
    consume(broker, INFO, "grid1")
    broker.publish(INFO, info(n=np.arange(2)))
    state = broker.state()
    with KafkaBroker() as other:
        other.join(ENV)
        other.load_state(state)
        (got,) = consume(other, INFO, "grid1")
        np.testing.assert_array_equal(got.payload["n"], np.arange(2))
        assert (got.lease, got.epoch, got.step, got.sequence) == (1, 1, 4, 2)
        other.ledger.check()
        assert other.join("b") == 2
    broker.publish(INFO, info(n=5))
    broker.load_environment_state(ENV, state[ENV])
    assert len(consume(broker, INFO, "grid1")) == 1
    with pytest.raises(WrongStateError, match="no environment has the id 'x'"):
        broker.environment_state("x")


def test_steps_and_renames_leave_nothing_behind(broker):
    def live(n):
        env_id = f"renamed_{n}"
        broker.join(env_id)
        channel = broker.channel(TopicManager.action_topic("x", "y", env_id))
        for step in range(20):
            broker.begin_step([env_id], [step])
            channel.put({"n": np.zeros(3)})
            broker.await_messages([channel])
            if step < 19:
                channel.take()
            broker.publish("news", message(env_id, n=step))
            broker.clear_environment(env_id) if step % 7 == 6 else consume(
                broker, "news", "device1", env_id
            )
        broker.leave(env_id)
        gc.collect()
        return len(gc.get_objects())

    counts = [live(n) for n in range(30)]
    assert counts[-1] - counts[5] < 30
    statistics = broker.statistics()
    assert (statistics["environments"], statistics["channels"], statistics["queued"]) == (0, 0, 0)


def test_threads_lose_nothing():
    n_threads, n_messages = 4, 300
    with KafkaBroker(capacity=n_messages, timeout_s=10.0) as broker:
        got = {i: [] for i in range(n_threads)}

        def produce(i):
            for n in range(n_messages):
                broker.publish(f"custom_topic {i}", message(n=n))

        def take(i):
            while len(got[i]) < n_messages:
                got[i] += numbers(consume(broker, f"custom_topic {i}"))

        threads = [
            threading.Thread(target=work, args=(i,)) for i in got for work in (produce, take)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert all(got[i] == list(range(n_messages)) for i in got)
        broker.ledger.check()


def test_close_ends_the_waits_of_other_threads():
    broker = KafkaBroker(timeout_s=30.0)
    channel, errors = broker.channel(ACTION), []

    def wait():
        try:
            broker.await_messages([channel])
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    broker.close()
    broker.close()
    thread.join(10)
    assert len(errors) == 1
    with pytest.raises(ClosedError, match="KafkaBroker"):
        broker.publish(ACTION, message())


class _Disturbed(MemoryTransport):
    """Hand records back in the order that `change` gives them."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def receive(self, timeout_s):
        return self._change(super().receive(timeout_s))


def _sent_one_by_one(change):
    broker = KafkaBroker(transport=_Disturbed(change), timeout_s=0.2)
    for n in range(3):
        broker.channel(INFO).put({"n": n})
        broker._delivery._unsent += broker._exchange.take_hop()
    return broker


def test_records_that_come_twice_are_dropped():
    with _sent_one_by_one(lambda records: [one for one in records for _ in range(2)]) as broker:
        assert numbers(consume(broker, INFO, "grid1")) == [0, 1, 2]
        assert broker.statistics()["duplicates"] == 3


@pytest.mark.parametrize("change", [lambda records: records[::-1], lambda records: records[1:]])
def test_lost_and_exchanged_messages_raise_until_the_reset(change):
    with _sent_one_by_one(change) as broker:
        for _ in range(2):
            with pytest.raises(SequenceGapError, match="expected message 0, got message") as caught:
                consume(broker, INFO, "grid1")
            assert caught.value.environment == ENV
        broker.publish("other", message("another", n=0))
        broker.clear_environment(ENV)
        broker.ledger.check()


class _Held(MemoryTransport):
    """Return nothing while `held`; call `sent` after each hop and `resetting` before each reset."""

    def __init__(self):
        super().__init__()
        self.held = False
        self.sent = self.resetting = lambda: None

    def send_hop(self, records, deadline):
        super().send_hop(records, deadline)
        self.sent()

    def receive(self, timeout_s):
        return [] if self.held else super().receive(timeout_s)

    def reset(self, *epoch):
        self.resetting()
        super().receive(0)  # drops what was sent so far, as the transport over Kafka does


def test_a_message_that_comes_just_after_the_time_out_is_returned(monkeypatch):
    transport = _Held()
    with KafkaBroker(transport=transport, timeout_s=0.05) as broker:
        wait_until = broker._delivery.wait_until

        def wait_and_deliver(*arguments):
            in_time = wait_until(*arguments)
            # As another thread that receives may do before this one looks again.
            transport.held = False
            broker.flush()
            return in_time

        monkeypatch.setattr(broker._delivery, "wait_until", wait_and_deliver)
        transport.held = True
        broker.publish(ACTION, message(n=0))
        assert numbers(consume(broker)) == [0]


@pytest.mark.parametrize("end", [KafkaBroker.clear_environment, KafkaBroker.leave])
def test_a_message_sent_while_the_transport_learns_of_a_reset_is_not_waited_for(end):
    transport = _Held()
    with KafkaBroker(transport=transport, timeout_s=0.2) as broker:

        def send_in_between():
            transport.held = True
            broker.publish(ACTION, message(n=1))
            broker.flush()
            transport.held = False

        broker.publish(ACTION, message(n=0))
        transport.resetting = send_in_between
        end(broker, ENV)
        assert consume(broker) == []
        broker.publish(ACTION, message(n=2))
        assert numbers(consume(broker)) == [2]
        broker.ledger.check()


def test_a_message_sent_while_a_step_begins_keeps_the_step_in_its_stamp():
    transport, late = _Held(), info(n=1)

    def send_late():
        transport.sent = lambda: None
        broker.publish(INFO, late)

    with KafkaBroker(transport=transport) as broker:
        broker.begin_step([ENV], [0])
        broker.publish(INFO, info(n=0))
        transport.sent = send_late
        broker.begin_step([ENV], [1])
        broker.publish(INFO, info(n=2))
        got = consume(broker, INFO, "grid1")
    assert [(one.payload["n"], one.step) for one in got] == [(0, 0), (1, 0), (2, 1)]
    assert late.step == 0


def test_after_a_stop_of_the_process_too_one_thread_sends_at_a_time(monkeypatch):
    transport, hops = _Held(), []

    def count():
        hops.append(broker._delivery._sending.locked())
        # Held up for a turn of waiting, after which the deadline is moved.
        transport.held = len(hops) == 1

    monkeypatch.setattr(delivery, "_MAX_TURN_S", -1.0)  # each turn seems to be a stop
    transport.sent = count
    with KafkaBroker(transport=transport) as broker:
        broker.publish(ACTION, message(n=0))
        assert numbers(consume(broker)) == [0]
    assert hops == [True, True]


def test_hops_that_exceed_a_record_are_divided():
    transport = MemoryTransport()
    transport.max_bytes = 2000
    with KafkaBroker(transport=transport) as broker:
        for n in range(10):
            broker.publish(ACTION, message(n=n, rest=b"." * 500))
        assert numbers(consume(broker)) == list(range(10))
        assert broker.statistics()["sent_records"] > 3
        with pytest.raises(MessageTooLargeError, match=r"at most 1[0-9]* bytes .*max_bytes"):
            broker.publish(ACTION, message(rest=b"." * 2000))
        assert consume(broker) == []


def test_records_say_who_sent_what_to_whom():
    odd = "\ud800 \u00e9"
    log = MemoryLog()
    seen = MemoryTransport(log)
    with KafkaBroker(transport=MemoryTransport(log)) as broker:
        topic = TopicManager.action_topic(odd, "y", odd)
        sent = message(odd, odd, "y", n=0)
        broker.publish(topic, sent)
        assert broker.consume(topic, "y", odd) == [sent]
    (record,) = seen.receive(0)
    assert read_record(record.content) == [sent]
    with pytest.raises(ValueError, match="version 1"):
        read_record(b"nonsense")


def test_a_delay_holds_messages_back_for_its_time():
    with KafkaBroker(transport=DelayedTransport(MemoryTransport(), 0.05)) as broker:
        channel = broker.channel(ACTION)
        began = time.monotonic()
        channel.put({"n": 0})
        assert broker.take_payloads([channel]) == [{"n": 0}]
        assert time.monotonic() - began >= 0.05


def test_a_delayed_hop_that_cannot_be_sent_is_sent_again():
    class Failing(MemoryTransport):
        fails = True

        def send_hop(self, records, deadline):
            if self.fails:
                self.fails = False
                raise BrokerUnavailableError("not now")
            super().send_hop(records, deadline)

    with KafkaBroker(transport=DelayedTransport(Failing(), 0.0)) as broker:
        broker.publish(ACTION, message(n=0))
        with pytest.raises(BrokerUnavailableError, match="not now"):
            consume(broker)
        assert numbers(consume(broker)) == [0]


def test_a_delayed_transport_may_be_closed_while_it_sends():
    class Closing(MemoryTransport):
        def send_hop(self, records, deadline):
            super().send_hop(records, deadline)
            delayed.close()  # as another thread does

    delayed = DelayedTransport(Closing(), 0.0)
    for _ in range(2):
        delayed.send_hop([], time.monotonic())
    assert delayed.receive(0.0) == []


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (
            {"mode": "kafak"},
            ValueError,
            r"mode: expected one of \('memory', 'kafka'\), got 'kafak'",
        ),
        ({"mode": "kafka"}, ValueError, "bootstrap: expected 'host:port' of a broker, got None"),
        ({"bootstrap": "x:1"}, ValueError, r"\['bootstrap'\] require mode='kafka'"),
        ({"partitions": 2}, ValueError, r"\['partitions'\] require mode='kafka'"),
        ({"run": "a b"}, ValueError, "run: expected 1 to 200 letters, digits"),
        ({"run": 3}, ValueError, "run: expected 1 to 200 letters, digits"),
        ({"capacity": 0}, ValueError, "capacity: expected an int of at least 1, got 0"),
        ({"timeout_s": 0}, ValueError, "timeout_s: expected seconds above 0, got 0"),
        ({"transport": 3}, TypeError, "transport: expected a Transport, got 3"),
        ({"mode": "kafka", "encoded": False}, ValueError, "which works only in memory"),
    ],
)
def test_wrong_arguments_are_named(wrong, error, match):
    with pytest.raises(error, match=match):
        KafkaBroker(**wrong)


@pytest.mark.parametrize(
    ("topic", "wrong", "error", "match"),
    [
        (ACTION, message("other"), ValueError, "env_id: expected 'rollout_0' for the topic"),
        (ACTION, message(sender="x"), ValueError, "sender_id: expected 'grid1' for the topic"),
        (ACTION, message(to="x"), ValueError, "recipient_id: expected 'device1' for the topic"),
        (ACTION, info(), ValueError, "message_type: expected 'action' for the topic"),
        (ACTION, message(""), ValueError, "env_id: expected an id, got ''"),
        (ACTION, message(3), TypeError, "env_id: expected an id that is a str, got 3"),
        (ACTION, message(kind="action"), TypeError, "expected a MessageType, got 'action'"),
        (ACTION, message(time="now"), TypeError, "timestamp: expected a number, got 'now'"),
        (ACTION, {"n": 0}, TypeError, "expected a KafkaMessage, got"),
        ("", message(), TypeError, "expected a Topic, or the name of a custom topic, got ''"),
        (3, message(), TypeError, "expected a Topic, or the name of a custom topic, got 3"),
    ],
)
def test_messages_that_do_not_belong_to_their_topic_are_refused(broker, topic, wrong, error, match):
    with pytest.raises(error, match=match):
        broker.publish(topic, wrong)
    assert broker.ledger.counts()["published"] == 0


def test_payloads_that_cannot_be_sent_are_refused_by_their_path():
    with KafkaBroker() as broker:
        match = re.escape("payload.seen[1]: expected None") + ".*'grid1' -> 'device1'"
        with pytest.raises(WireError, match=match):
            broker.publish(ACTION, message(seen=[0, {1}]))
        broker.publish(ACTION, message(n=0))
        assert numbers(consume(broker)) == [0]
        odd = message()
        odd.payload = [1]
        with pytest.raises(TypeError, match=r"payload: expected a dict, got \[1\]"):
            broker.publish(ACTION, odd)


def test_consumers_ask_for_what_is_theirs(broker):
    with pytest.raises(ValueError, match="expected a topic of environment 'other'"):
        consume(broker, env_id="other")
    with pytest.raises(ValueError, match="expected a topic for agent 'x'"):
        consume(broker, agent="x")
    with pytest.raises(ValueError, match="agent_id: expected None, since"):
        broker.subscribe(ACTION, agent_id="x")
    with pytest.raises(TypeError, match="expected a callback, or agent_id"):
        broker.subscribe(ACTION)
    with pytest.raises(TypeError, match="expected a function, got 3"):
        broker.subscribe(ACTION, 3)
    with pytest.raises(TypeError, match="expected a Topic created by a TopicManager, got 'x'"):
        broker.channel("x")
    with pytest.raises(ValueError, match="expected a topic with a recipient"):
        broker.channel(SPOKEN)
