"""One broker for the agents of many environments."""

from __future__ import annotations

import importlib
import re
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.delivery import Delivery
from parllel.distributed.messaging.exchange import Exchange
from parllel.distributed.messaging.kafka_message import KafkaMessage, MessageType
from parllel.distributed.messaging.memory_transport import MemoryTransport
from parllel.distributed.messaging.message_tap import MessageTap
from parllel.distributed.messaging.namespaces import Namespaces
from parllel.distributed.messaging.topic import Topic, check_id
from parllel.distributed.messaging.transport import Transport
from parllel.logging.ledger import Ledger
from parllel.types import Closeable, State

_MODES = ("memory", "kafka")
_RUN = re.compile(r"[A-Za-z0-9._-]{1,200}")


class KafkaBroker(Closeable):
    """Carry messages between the agents of many environments, none of which sees those of another.

        publish, Channel.put   ---> the hop that is being put together
        flush               ---> the transport: one record for each environment and kind of message
        consume, Channel.take  <--- what has arrived, in the order in which it was sent, each message once

    `consume`, `await_messages` and `take_payloads` flush by themselves, and wait for what this broker has
    sent, so that memory and Kafka behave alike. Threads may share a broker.

    Args:
        mode: "memory": in this process; "kafka": through a Kafka broker at `bootstrap`.
        run: names what belongs together for `parllel messaging tap`; letters, digits and "._-". By default it
            is unique.
        transport: in place of the one that the mode stands for; the broker closes it.
        encoded: whether payloads travel as bytes, as they were when they were published. False hands on
            references, in memory alone: a payload, and an array in one, must not change after publishing.
        capacity: messages from one agent to another that may wait.
        timeout_s: for how long a call waits for messages, or for the transport, in seconds.
        bootstrap: "host:port" of a Kafka broker.
        kafka: further arguments of `parllel.distributed.messaging.kafka.KafkaTransport`.

    Raises:
        ValueError: if an argument is none of these, or does not go with the mode.
        ImportError: for "kafka" without the extra `kafka`.
        BrokerUnavailableError: if there is no broker at `bootstrap`.
        BrokerRefusedError: if it lacks something that is needed.

    Example:
        >>> broker = KafkaBroker()
        >>> topic = TopicManager.action_topic("grid1", "device1", "rollout_0")
        >>> payload = {"action": 2}
        >>> broker.publish(
        ...     topic, KafkaMessage("rollout_0", "grid1", "device1", 0.0, MessageType.ACTION, payload)
        ... )
        >>> [message.payload for message in broker.consume(topic, "device1", "rollout_0")]
        [{'action': 2}]
    """

    def __init__(
        self,
        mode: str = "memory",
        *,
        run: str | None = None,
        transport: Transport | None = None,
        encoded: bool = True,
        capacity: int = 1024,
        timeout_s: float = 10.0,
        bootstrap: str | None = None,
        **kafka: Any,
    ) -> None:
        run = uuid.uuid4().hex if run is None else run
        _check_settings(run, capacity, timeout_s)
        self.mode = mode
        self.run = run
        self.timeout_s = timeout_s
        self.encoded = encoded
        transport = _make_transport(
            mode,
            run,
            transport,
            encoded=encoded,
            bootstrap=bootstrap,
            timeout_s=timeout_s,
            kafka=kafka,
        )
        self._exchange = Exchange(
            run, encoded=encoded, capacity=capacity, max_bytes=transport.max_bytes
        )
        self._namespaces = Namespaces(self._exchange)
        self._delivery = Delivery(self._exchange, transport, self._namespaces.by_id, timeout_s)

    @property
    def _open(self) -> threading.RLock:
        self._delivery.check_open()
        return self._exchange.lock

    def create_topic(self, topic: str, *, latest: bool = False) -> None:
        """Make a topic known before its first message; it need not be.

        latest: whether the newest message alone is kept of each sender, and a step may have several actions.
        """
        with self._open:
            if isinstance(topic, Topic):
                self._namespaces.get(topic.address.environment).create_topic(topic, latest)
                return
            _check_custom_topic("create_topic", topic)
            if latest:
                self._exchange.latest_topics.add(topic)

    def publish(self, topic: str, message: KafkaMessage) -> None:
        """Send a message with the current hop, and write into it the numbers that it is sent with.

        topic: a `Topic`, whose address has to be that of the message; or a plain name, a custom topic of the
            message's environment between its sender and its recipient.

        A broadcast goes to those who have subscribed by now. On the memory broker, the callbacks that the
        message is for are called at once.

        Raises:
            TypeError: if the message is none, or one of its fields has the wrong type.
            ValueError: if it does not belong to the topic.
            ClosedError: if the broker was closed.
        And what `Channel.put` raises.
        """
        _check_message(topic, message)
        with self._open:
            namespace = self._namespaces.get(message.env_id)
            namespace.create_topic(topic)
            channels = namespace.channels_from(topic, message)
            for channel in channels:
                channel.put(message.payload, message.timestamp)
                channel.stamp(message)
        if any(channel.subscriptions or channel.latest for channel in channels):
            self.flush()

    def subscribe(
        self,
        topic: str,
        callback: Callable[[KafkaMessage], object] | None = None,
        *,
        agent_id: str | None = None,
    ) -> Callable[[], None]:
        """Call a function with each message that arrives from now on; return a function that ends this.

        A callback watches: messages wait for their consumer all the same. Those of a plain name are of any
        environment. If it raises, this is logged once and counted.

        agent_id: lets an agent consume the broadcasts of a topic from now on.

        Raises:
            TypeError: if there is neither a callback nor an agent.
            ValueError: for an agent of a topic that is no broadcast.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"subscribe: callback: expected a function, got {callback!r}")
        if callback is None and agent_id is None:
            raise TypeError(
                "subscribe: expected a callback, or agent_id for a broadcast, got neither"
            )
        with self._open:
            return self._namespaces.subscribe(topic, callback, agent_id)

    def consume(
        self, topic: str, agent_id: str, env_id: str, clear: bool = True
    ) -> list[KafkaMessage]:
        """Return the messages for an agent, the oldest first, [] if there are none; remove them with `clear`.

        It waits until what was published before has arrived. Actions of an earlier step are dropped. Those of
        several senders of a plain name are ordered by their time.

        Raises:
            ValueError: if the topic is of another environment or for another agent, or is a broadcast to
                which the agent has not subscribed.
            MissingMessageError, BrokerUnavailableError: if what was published does not arrive in time.
            SequenceGapError: if some of it was lost.
        """
        check_id("consume: env_id", env_id)
        check_id("consume: agent_id", agent_id)
        with self._open:
            channels = self._namespaces.channels_to(topic, agent_id, env_id)
        self._await_sent(channels)
        with self._exchange.lock:
            messages = [message for channel in channels for message in channel.consume(clear)]
        if len(channels) > 1:
            messages.sort(key=lambda message: message.timestamp)
        return messages

    def _await_sent(self, channels: list[Channel]) -> None:
        with self._exchange.lock:
            sent = [(channel, channel.sent, channel.lease.epoch) for channel in channels]

        def arrived() -> bool:
            # After a reset by another thread there is nothing left to wait for.
            return all(
                channel.received >= number or channel.lease.epoch != epoch or channel.lease.left
                for channel, number, epoch in sent
            )

        if not self._delivery.wait_until(arrived, channels, self._delivery.deadline(None)):
            late = next(channel for channel, number, _ in sent if channel.received < number)
            raise self._delivery.overdue(late, f"waited for {self.timeout_s} s")
        self._exchange.watchers.run(self.timeout_s)

    def clear_environment(self, env_id: str) -> None:
        """Begin the next epoch of an environment: whatever was sent in this one is dropped, wherever it is.

        Topics and subscriptions stay. The cost is that of the environment's own agents.
        """
        check_id("clear_environment: env_id", env_id)
        with self._open:
            namespace = self._namespaces.by_id.get(env_id)
            if namespace is None:
                return
            namespace.clear()
            lease = namespace.lease
        self._delivery.reset(lease.key, lease.number, lease.epoch)

    def get_environment_topics(self, env_id: str) -> list[str]:
        """Return the topics of an environment that were created or written to, in this order."""
        with self._open:
            namespace = self._namespaces.by_id.get(
                check_id("get_environment_topics: env_id", env_id)
            )
            return [] if namespace is None else namespace.topics()

    def join(self, env_id: str) -> int:
        """Lease an id to an environment and return the number of the lease, which is never used again.

        Messages of earlier leases are no longer delivered.

        Raises:
            WrongStateError: if another environment has it.
        """
        with self._open:
            return self._namespaces.join(check_id("join: env_id", env_id))

    def leave(self, env_id: str) -> None:
        """Give an id up, with its topics, messages, subscriptions and channels."""
        with self._open:
            namespace = self._namespaces.leave(check_id("leave: env_id", env_id))
        if namespace is not None:
            lease = namespace.lease
            self._delivery.reset(lease.key, lease.number, lease.epoch)

    def begin_step(self, env_ids: Sequence[str], steps: Sequence[int]) -> None:
        """Number what these environments send from now on; each channel has one action until the next number.

        steps: a number for each environment.

        Raises:
            ValueError: if one is less than that before in the same epoch, or there are not as many.
        """
        if self._exchange.outgoing:
            self.flush()
        with self._open:
            for env_id, step in zip(env_ids, steps, strict=True):
                lease = self._namespaces.get(env_id).lease
                if lease.step is not None and step < lease.step:
                    raise ValueError(
                        f"begin_step: environment {env_id!r}: expected a step from {lease.step} on, "
                        f"got {step!r}"
                    )
                lease.step = step

    def channel(self, topic: Topic, env_id: str | None = None) -> Channel:
        """Return the way from one agent to another, which is quicker to use than its name.

        Raises:
            TypeError: if the topic is a plain name, which has no address.
            ValueError: if it is of another environment, or a broadcast, which has many recipients.
        """
        if not isinstance(topic, Topic):
            raise TypeError(f"channel: expected a Topic, as TopicManager makes it, got {topic!r}")
        if env_id is not None and env_id != topic.address.environment:
            raise ValueError(f"channel: expected a topic of environment {env_id!r}, got {topic!r}")
        if topic.address.recipient is None:
            raise ValueError(
                f"channel: expected a topic with a recipient, got {topic!r}; use publish"
            )
        with self._open:
            namespace = self._namespaces.get(topic.address.environment)
            namespace.create_topic(topic)
            return namespace.channel_of(topic.address)

    def await_messages(self, channels: Sequence[Channel], deadline: float | None = None) -> None:
        """Flush, and wait until each channel has its message of the step; those of earlier steps are dropped.

        deadline: of `time.monotonic`; None is the broker's time-out from now.

        Raises:
            MissingMessageError: names environment, channel and step of the first missing message.
            SequenceGapError: if it was lost.
            BrokerUnavailableError: if it is on its way, or cannot be sent.
        """
        self._delivery.await_messages(channels, deadline)
        self._exchange.watchers.run(self.timeout_s)

    def take_payloads(
        self, channels: Sequence[Channel], deadline: float | None = None
    ) -> list[dict[str, Any]]:
        """Await one message of each channel, and consume them; raise as `await_messages`."""
        self.await_messages(channels, deadline)
        with self._exchange.lock:
            payloads = []
            for channel in channels:
                queue = channel.queue
                # As `take_payload` would, without a call for each; another thread may have been quicker.
                if queue and not channel.lease.left and queue[0][0] == channel.lease.step:
                    channel.taken += 1
                    payloads.append(queue.pop(0)[3])
                else:
                    payloads.append(channel.take_payload())
            return payloads

    def flush(self, deadline: float | None = None) -> None:
        """Send what was published, take in what has come, and call the callbacks that it is for.

        Raises:
            BrokerUnavailableError: if it could not be sent by the deadline; the next flush tries again.
        """
        self._delivery.check_open()
        self._delivery.flush(deadline)
        self._exchange.watchers.run(self.timeout_s)

    def tap(
        self, environments: Collection[str] | None = None, *, capacity: int = 1024
    ) -> MessageTap:
        """Return a view of the messages that arrive from now on, of some environments or all."""
        taps = self._exchange.watchers.taps
        with self._open:
            tap = MessageTap(environments, capacity, taps.remove)
            taps.append(tap)
        return tap

    def statistics(self) -> dict[str, int]:
        """Return counts of messages, records, environments and faults since the broker was made."""
        with self._exchange.lock:
            return {**self._namespaces.statistics(), **self._delivery.statistics()}

    @property
    def ledger(self) -> Ledger:
        """What became of the messages up to now; its `check` raises if any is lost or counted twice."""
        with self._exchange.lock:
            return self._namespaces.ledger()

    def environment_state(self, env_id: str) -> State:
        """Return where an environment stands: numbers, and messages that nobody has consumed.

        Raises:
            WrongStateError: if no environment has the id.
            MissingMessageError: if what was published does not arrive within the time-out.
        """
        with self._open:
            namespace = self._namespaces.existing(env_id)
            channels = list(namespace.channels.values())
        self._await_sent(channels)
        with self._exchange.lock:
            return namespace.state()

    def load_environment_state(self, env_id: str, state: State) -> None:
        """Let an environment go on where another stood; messages that are on their way reach nobody.

        Raises:
            WrongStateError: if no environment has the id.
        """
        with self._open:
            self._namespaces.load_state(env_id, state)

    def state(self) -> State:
        """Return where all environments stand."""
        return {env_id: self.environment_state(env_id) for env_id in list(self._namespaces.by_id)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Let the environments of a state go on where they stood; those that have not joined join."""
        for env_id, of_one in state.items():
            with self._open:
                self._namespaces.get(env_id)
            self.load_environment_state(env_id, of_one)

    def close(self) -> None:
        """Give everything up; waits that other threads are in end with ClosedError."""
        self._delivery.close()


def _make_transport(
    mode: str,
    run: str,
    transport: Transport | None,
    *,
    encoded: bool,
    bootstrap: str | None,
    timeout_s: float,
    kafka: Mapping[str, Any],
) -> Transport:
    """Return the transport that a `KafkaBroker` of these arguments uses.

    Raises:
        ValueError: if the mode is none, or an argument does not go with it.
        TypeError: if the transport is none.
        ImportError: for "kafka" without its client.
    """
    if mode not in _MODES:
        raise ValueError(f"KafkaBroker: mode: expected one of {_MODES}, got {mode!r}")
    if not encoded and (mode == "kafka" or transport is not None):
        raise ValueError(
            "KafkaBroker: encoded=False: references stay in memory; leave out mode='kafka' and transport"
        )
    if transport is not None:
        if not isinstance(transport, Transport):
            raise TypeError(f"KafkaBroker: transport: expected a Transport, got {transport!r}")
        if bootstrap is not None or kafka:
            given = ["bootstrap"] * (bootstrap is not None) + list(kafka)
            raise ValueError(f"KafkaBroker: {given} go with mode='kafka' alone, got a transport")
        return transport
    if mode == "memory":
        if bootstrap is not None or kafka:
            given = ["bootstrap"] * (bootstrap is not None) + list(kafka)
            raise ValueError(f"KafkaBroker: {given} go with mode='kafka' alone, got mode='memory'")
        return MemoryTransport()
    if bootstrap is None:
        raise ValueError(
            "KafkaBroker: mode='kafka': bootstrap: expected 'host:port' of a broker, got None"
        )
    kind = importlib.import_module("parllel.distributed.messaging.kafka").KafkaTransport
    return cast(Transport, kind(bootstrap, run, timeout_s=timeout_s, **kafka))


def _check_settings(run: object, capacity: object, timeout_s: object) -> None:
    """Check what `KafkaBroker` was given.

    Raises:
        ValueError: names what is wrong.
    """
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise ValueError(
            f"KafkaBroker: run: expected 1 to 200 letters, digits and '._-', got {run!r}"
        )
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ValueError(f"KafkaBroker: capacity: expected an int of at least 1, got {capacity!r}")
    if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise ValueError(f"KafkaBroker: timeout_s: expected seconds above 0, got {timeout_s!r}")


def _check_message(topic: str, message: KafkaMessage) -> None:
    """Check what `KafkaBroker.publish` was given.

    Raises:
        TypeError: if a part of it has the wrong type.
        ValueError: if an id is empty, or the message is not of the topic.
    """
    if not isinstance(message, KafkaMessage):
        raise TypeError(f"publish: message: expected a KafkaMessage, got {message!r}")
    if not isinstance(message.message_type, MessageType):
        raise TypeError(
            f"publish: message_type: expected a MessageType, got {message.message_type!r}"
        )
    timestamp = message.timestamp
    if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)):
        raise TypeError(f"publish: timestamp: expected a number, got {timestamp!r}")
    check_id("publish: env_id", message.env_id)
    check_id("publish: sender_id", message.sender_id)
    check_id("publish: recipient_id", message.recipient_id)
    if not isinstance(topic, Topic):
        _check_custom_topic("publish", topic)
        return
    environment, kind, sender, recipient = topic.address
    to = message.recipient_id if recipient is None else recipient
    expected = (environment, kind.value, sender, to)
    got = (message.env_id, message.message_type.value, message.sender_id, message.recipient_id)
    for name, one, other in zip(
        ("env_id", "message_type", "sender_id", "recipient_id"), expected, got, strict=True
    ):
        if one != other:
            raise ValueError(
                f"publish: {name}: expected {one!r}, as in the topic {topic!r}, got {other!r}"
            )


def _check_custom_topic(call: str, topic: object) -> None:
    """Check the name of a custom topic; raise as `_check_message`."""
    if not isinstance(topic, str) or not topic:
        raise TypeError(
            f"{call}: topic: expected a Topic, or the name of a custom topic, got {topic!r}"
        )
