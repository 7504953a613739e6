"""Any interleaving of what several runs do on one broker, held against queues of Python's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from parllel.distributed.messaging import KafkaBroker, KafkaMessage, MessageType, TopicManager

# What names are put together with, what paths and topics may not hold, and half of a surrogate pair.
ODD = st.text(st.sampled_from("a_%/-.\n\0\ud800é"), min_size=1, max_size=4)
IDS = st.one_of(
    ODD, st.sampled_from(["a", "a_", "a__b", "env_a", "_to_", "x" * 300]), st.text(min_size=1)
)
N_RUNS = 2
RUN = st.integers(0, N_RUNS - 1)
INDEX = st.integers(0, 3)


class IsolationMachine(RuleBasedStateMachine):
    """Publish, consume, reset, rename and step at random; what is consumed is what was published, in order.

    Each run has the same environments and agents. Every message carries a number of its own, so one that is
    lost, seen twice, out of order or elsewhere is noticed at once. Environments that step are others than
    those that publish at will.

    Args:
        make_broker: makes a broker for a run on what all of them share.
    """

    def __init__(self, make_broker: Callable[[], KafkaBroker]) -> None:
        super().__init__()
        self.brokers = [make_broker() for _ in range(N_RUNS)]
        # By run, environment, custom_topic, kind, sender and recipient.
        self.queues: dict[tuple, list[int]] = defaultdict(list)
        self.audiences: dict[tuple, set[str]] = defaultdict(set)
        self.sent = 0

    @initialize(names=st.lists(IDS, min_size=8, max_size=8, unique=True))
    def name(self, names: list[str]) -> None:
        self.agents = names[:4]
        self.env_ids = [names[:4] for _ in range(N_RUNS)]
        self.stepping = names[4:7]
        self.steps = [dict.fromkeys(self.stepping, 0) for _ in range(N_RUNS)]
        self.free = [[f"{names[7]}{n}" for n in range(100)] for _ in range(N_RUNS)]
        for broker in self.brokers:
            for env_id in self.stepping:
                broker.join(env_id)

    def _number(self) -> int:
        self.sent += 1
        return self.sent

    def _publish(self, run, topic, env_id, kind, sender, recipient) -> int:
        number = self._number()
        message = KafkaMessage(env_id, sender, recipient, float(number), kind, {"number": number})
        self.brokers[run].publish(topic, message)
        return number

    @rule(run=RUN, env=INDEX, sender=INDEX, recipient=INDEX, action=st.booleans())
    def publish(self, run, env, sender, recipient, action):
        env_id, sender, recipient = self._names(run, env, sender, recipient)
        make = TopicManager.action_topic if action else TopicManager.info_topic
        kind = MessageType.ACTION if action else MessageType.INFO
        topic = make(sender, recipient, env_id)
        number = self._publish(run, topic, env_id, kind, sender, recipient)
        self.queues[run, env_id, None, kind, sender, recipient].append(number)

    @rule(
        run=RUN, env=INDEX, sender=INDEX, recipient=INDEX, action=st.booleans(), clear=st.booleans()
    )
    def consume(self, run, env, sender, recipient, action, clear):
        env_id, sender, recipient = self._names(run, env, sender, recipient)
        make = TopicManager.action_topic if action else TopicManager.info_topic
        kind = MessageType.ACTION if action else MessageType.INFO
        topic = make(sender, recipient, env_id)
        key = (run, env_id, None, kind, sender, recipient)
        self._check(run, topic, recipient, env_id, [key], clear)

    @rule(run=RUN, env=INDEX, sender=INDEX, recipient=INDEX, custom_topic=INDEX)
    def publish_to_channel(self, run, env, sender, recipient, custom_topic):
        env_id, sender, recipient = self._names(run, env, sender, recipient)
        custom_topic = self.agents[custom_topic]
        number = self._publish(run, custom_topic, env_id, MessageType.INFO, sender, recipient)
        key = (run, env_id, custom_topic, MessageType.INFO, sender, recipient)
        self.queues[key].append(number)

    @rule(run=RUN, env=INDEX, recipient=INDEX, custom_topic=INDEX, clear=st.booleans())
    def consume_from_channel(self, run, env, recipient, custom_topic, clear):
        env_id, _, recipient = self._names(run, env, 0, recipient)
        custom_topic = self.agents[custom_topic]
        keys = [
            (run, env_id, custom_topic, MessageType.INFO, sender, recipient)
            for sender in self.agents
        ]
        self._check(run, custom_topic, recipient, env_id, keys, clear)

    @rule(run=RUN, env=INDEX, sender=INDEX, listener=INDEX)
    def subscribe(self, run, env, sender, listener):
        env_id, sender, listener = self._names(run, env, sender, listener)
        topic = TopicManager.broadcast_topic(sender, env_id)
        self.brokers[run].subscribe(topic, agent_id=listener)
        self.audiences[run, env_id, sender].add(listener)

    @rule(run=RUN, env=INDEX, sender=INDEX)
    def broadcast(self, run, env, sender):
        env_id, sender, recipient = self._names(run, env, sender, 0)
        topic = TopicManager.broadcast_topic(sender, env_id)
        number = self._publish(run, topic, env_id, MessageType.BROADCAST, sender, recipient)
        for listener in self.audiences[run, env_id, sender]:
            self.queues[run, env_id, None, MessageType.BROADCAST, sender, listener].append(number)

    @rule(run=RUN, env=INDEX, sender=INDEX, clear=st.booleans())
    def consume_broadcast(self, run, env, sender, clear):
        env_id, sender, _ = self._names(run, env, sender, 0)
        topic = TopicManager.broadcast_topic(sender, env_id)
        for listener in self.audiences[run, env_id, sender]:
            key = (run, env_id, None, MessageType.BROADCAST, sender, listener)
            self._check(run, topic, listener, env_id, [key], clear)

    @rule(run=RUN)
    def flush(self, run):
        self.brokers[run].flush()

    @rule(run=RUN, env=INDEX)
    def reset(self, run, env):
        env_id = self.env_ids[run][env]
        self.brokers[run].clear_environment(env_id)
        self._forget(run, env_id)

    @rule(run=RUN, env=INDEX, new=st.booleans())
    def rename(self, run, env, new):
        """Take a new id, or the same again."""
        old = self.env_ids[run][env]
        self.brokers[run].leave(old)
        self._forget(run, old)
        for key in [key for key in self.audiences if key[:2] == (run, old)]:
            del self.audiences[key]
        if new:
            self.env_ids[run] = [*self.env_ids[run]]
            self.env_ids[run][env] = self.free[run].pop()
        self.brokers[run].join(self.env_ids[run][env])

    @rule(
        run=RUN,
        env=INDEX,
        sender=INDEX,
        recipient=INDEX,
        then=st.sampled_from(["reset", "rename", "rename to the same"]),
    )
    def end_while_a_message_is_on_its_way(self, run, env, sender, recipient, then):
        """What comes next over the same channel has the same number, and is not taken for it."""
        self.publish(run, env, sender, recipient, True)
        self.brokers[run].flush()
        if then == "reset":
            self.reset(run, env)
        else:
            self.rename(run, env, then == "rename")
        self.publish(run, env, sender, recipient, True)
        self.consume(run, env, sender, recipient, True, True)

    @rule(run=RUN, chosen=st.sets(INDEX.filter(lambda i: i < 3), min_size=1), whole=st.booleans())
    def step(self, run, chosen, whole):
        """Step some environments; or send, and reset them before anything is taken."""
        broker = self.brokers[run]
        env_ids = [self.stepping[i] for i in sorted(chosen)]
        broker.begin_step(env_ids, [self.steps[run][env_id] for env_id in env_ids])
        channels = [
            broker.channel(
                TopicManager.action_topic(self.agents[0], self.agents[1], env_id), env_id
            )
            for env_id in env_ids
        ]
        numbers = [self._number() for _ in channels]
        for channel, number in zip(channels, numbers, strict=True):
            channel.put({"number": number})
        if not whole:
            broker.flush()
        else:
            assert [payload["number"] for payload in broker.take_payloads(channels)] == numbers
        for env_id in env_ids:
            self.steps[run][env_id] += 1
            if not whole:
                broker.clear_environment(env_id)
                self.steps[run][env_id] = 0

    @precondition(lambda self: any(self.queues.values()))
    @rule()
    def balance(self):
        for broker in self.brokers:
            broker.ledger.check()

    def teardown(self) -> None:
        """Consume all that is left, leave, and see that nothing is left behind."""
        try:
            if hasattr(self, "agents"):
                self._finish()
        finally:
            for broker in self.brokers:
                broker.close()

    def _finish(self) -> None:
        for (run, env_id, custom_topic, kind, sender, recipient), queue in [*self.queues.items()]:
            if queue and custom_topic is None and kind is not MessageType.BROADCAST:
                make = TopicManager.action_topic
                if kind is MessageType.INFO:
                    make = TopicManager.info_topic
                topic = make(sender, recipient, env_id)
                key = (run, env_id, custom_topic, kind, sender, recipient)
                self._check(run, topic, recipient, env_id, [key], clear=True)
        for run, broker in enumerate(self.brokers):
            for env_id in {*self.env_ids[run], *self.stepping}:
                broker.leave(env_id)
                assert broker.get_environment_topics(env_id) == []
            broker.ledger.check()
            counts = broker.statistics()
            assert (counts["environments"], counts["channels"], counts["queued"]) == (0, 0, 0)

    def _names(self, run, env, sender, recipient):
        return self.env_ids[run][env], self.agents[sender], self.agents[recipient]

    def _check(self, run, topic, recipient, env_id, keys, clear) -> None:
        got = self.brokers[run].consume(topic, recipient, env_id, clear)
        expected = sorted(number for key in keys for number in self.queues[key])
        assert [message.payload["number"] for message in got] == expected
        assert all((one.env_id, one.recipient_id) == (env_id, recipient) for one in got)
        if clear:
            for key in keys:
                self.queues[key].clear()

    def _forget(self, run, env_id) -> None:
        for key in [key for key in self.queues if key[:2] == (run, env_id)]:
            del self.queues[key]
