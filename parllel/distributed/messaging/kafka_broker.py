"""The broker for the agents of many environments."""

# Which lock a call holds:
#
#   exchange.lock         every look at channels, leases, topics and outboxes; held briefly
#   Delivery._sending     while a hop is passed to the transport; taken before exchange.lock
#   Delivery._receiving   while one thread waits for records, 50 ms at a time; taken before it, too
#   none                  the callbacks at the end of a call, which may use the broker

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
from parllel.distributed.messaging.hosts.host_registry import HostRegistry
from parllel.distributed.messaging.kafka_message import KafkaMessage, MessageType
from parllel.distributed.messaging.memory_transport import MemoryTransport
from parllel.distributed.messaging.message_tap import MessageTap
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.namespaces import Namespaces
from parllel.distributed.messaging.topic import Topic, check_id
from parllel.distributed.messaging.transport import Transport
from parllel.logging.ledger import Ledger
from parllel.types import Closeable, State

_MODES = ("memory", "kafka")
_RUN = re.compile(r"[A-Za-z0-9._-]{1,200}")


class KafkaBroker(Closeable):
    """Carry messages between the agents of many environments, each isolated from the others.

        publish, Channel.put   ---> the current hop
        flush                  ---> the transport: one record for each environment and kind of message
        consume, Channel.take  <--- messages that arrived, in the order they were sent, each once

    `consume`, `await_messages` and `take_payloads` flush first, and wait for everything this broker has sent,
    so that memory and Kafka behave alike. Thread-safe.

    Args:
        mode: "memory": within this process; "kafka": through a Kafka broker at `bootstrap`.
        run: name of the run for `parllel messaging tap`; letters, digits and "._-". Unique by default.
        transport: replaces the mode's transport; the broker closes it.
        encoded: True to encode payloads when they are published. False passes references, which
            works only in memory. Then a payload and its arrays must not change after publishing.
        capacity: maximum number of unconsumed messages from one agent to another.
        timeout_s: time in seconds that a call waits for messages or for the transport.
        bootstrap: "host:port" of a Kafka broker.
        kafka: further arguments of `parllel.distributed.messaging.kafka.KafkaTransport`, such as
            `hosts=True`, which environments with hosted agents require.

    Attributes:
        hosts: the hosts of the run; None without `hosts=True`.

    Raises:
        ValueError: for an unknown mode or an invalid argument, or one that does not apply to the mode.
        ImportError: for mode "kafka" if the extra `kafka` is not installed.
        BrokerUnavailableError: if there is no broker at `bootstrap`.
        BrokerRefusedError: if it lacks a required feature or denies permission.

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
        # First: a transport may connect and start threads, which an error below would not end.
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
        # Deliveries look up environments in `by_id` under the exchange's lock, so the dict is
        # changed under the same lock and never replaced.
        self._namespaces = Namespaces(self._exchange)
        self._delivery = Delivery(self._exchange, transport, self._namespaces.by_id, timeout_s)
        self._transport = transport
        self.hosts = self._meet_hosts() if kafka.get("hosts") else None

    def _meet_hosts(self) -> HostRegistry | None:
        parts = self._exchange, self._delivery, self._transport, self._namespaces.by_id
        registry = HostRegistry(*parts, self.timeout_s)
        try:
            registry.start()
        except BaseException:
            self._transport.close()
            raise
        return registry

    @property
    def _open(self) -> threading.RLock:
        """The exchange's lock, once the broker is known to be open."""
        # Before the lock: `close` may still come between the two. Such a call then changes memory
        # that nobody looks at any more, and its flush raises.
        self._delivery.check_open()
        return self._exchange.lock

    def create_topic(self, topic: str, *, latest: bool = False) -> None:
        """Create a topic before its first message. Optional, except for `latest`.

        latest: keep only the newest message of each sender, and allow several actions per step.
        """
        with self._open:
            if isinstance(topic, Topic):
                self._namespaces.get(topic.address.environment).create_topic(topic, latest)
                return
            _check_custom_topic("create_topic", topic)
            if latest:
                # Read when a channel is created: it changes none that exists.
                self._exchange.latest_topics.add(topic)

    def publish(self, topic: str, message: KafkaMessage) -> None:
        """Send a message with the current hop, and write lease, epoch, step and sequence number into it.

        topic: a `Topic` that carries the address of the message, or a plain name. A plain name is a
            custom topic of the message's environment, from its sender to its recipient.

        A broadcast reaches the agents that are subscribed when it is published. On the memory
        broker, callbacks run before this method returns.

        Raises:
            TypeError: if `message` is not a KafkaMessage, or one of its fields has the wrong type.
            ValueError: if `message` does not match the topic.
            ClosedError: if the broker was closed.
        Also raises as `Channel.put`.
        """
        # Before anything is created: a refused message leaves no topic and no environment.
        _check_message(topic, message)
        with self._open:
            namespace = self._namespaces.get(message.env_id)
            namespace.create_topic(topic)
            channels = namespace.channels_from(topic, message)
            # Under one lock, so that all copies of a broadcast leave in the same hop and `stamp`
            # finds the numbers of this `put`. If one listener's queue is full, those before it have
            # the message.
            for channel in channels:
                channel.put(message.payload, message.timestamp)
                channel.stamp(message)
        # Callbacks expect the message now. And a `latest` channel replaces messages on arrival only, so
        # unflushed ones would fill its capacity.
        if any(channel.subscriptions or channel.latest for channel in channels):
            self.flush()

    def subscribe(
        self,
        topic: str,
        callback: Callable[[KafkaMessage], object] | None = None,
        *,
        agent_id: str | None = None,
    ) -> Callable[[], None]:
        """Call a function with each future message, and return a function that cancels the subscription.

        Callbacks only observe; messages still go to their consumers. A plain name covers all
        environments. Exceptions raised by a callback are counted, and the first one is logged.

        agent_id: agent to subscribe to a broadcast topic, so that it can consume from the topic.

        Raises:
            TypeError: if neither a callback nor an agent is given.
            ValueError: if an agent is given for a topic that is not a broadcast.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"subscribe: callback: expected a function, got {callback!r}")
        if callback is None and agent_id is None:
            raise TypeError(
                "subscribe: expected a callback, or agent_id for a broadcast, got neither"
            )
        with self._open:
            # Lists of subscriptions are replaced, never changed: `publish` looks at them without
            # the lock.
            return self._namespaces.subscribe(topic, callback, agent_id)

    def consume(
        self, topic: str, agent_id: str, env_id: str, clear: bool = True
    ) -> list[KafkaMessage]:
        """Return the messages for an agent, oldest first, and remove them if `clear`.

        Waits until everything published before this call has arrived. Actions of earlier steps are dropped.
        Messages of several senders under a plain name are sorted by timestamp.

        Raises:
            ValueError: if the topic belongs to another environment or agent, or is a broadcast that the
                agent has not subscribed to.
            MissingMessageError, BrokerUnavailableError: if a published message does not arrive in time.
            SequenceGapError: if a message was lost.
        """
        check_id("consume: env_id", env_id)
        check_id("consume: agent_id", agent_id)
        with self._open:
            channels = self._namespaces.channels_to(topic, agent_id, env_id)
        self._await_sent(channels)
        # Another thread may have consumed or reset meanwhile. Then there is less to return, which
        # is no error.
        with self._exchange.lock:
            messages = [message for channel in channels for message in channel.consume(clear)]
        # A stable sort: messages of one sender with equal timestamps stay in their order.
        if len(channels) > 1:
            messages.sort(key=lambda message: message.timestamp)
        return messages

    def _await_sent(self, channels: list[Channel]) -> None:
        # The numbers of now: what other threads send during the wait must not prolong it.
        with self._exchange.lock:
            sent = [(channel, channel.sent, channel.lease.epoch) for channel in channels]

        def first_late() -> Channel | None:
            # `received` only grows within an epoch. After a reset by another thread there is nothing left
            # to wait for.
            return next(
                (
                    channel
                    for channel, number, epoch in sent
                    if channel.received < number
                    and channel.lease.epoch == epoch
                    and not channel.lease.left
                ),
                None,
            )

        # Without the lock: another thread may have to deliver, or reset, while this one waits.
        deadline = self._delivery.deadline(None)
        if not self._delivery.wait_until(lambda: first_late() is None, channels, deadline):
            # Another thread may have delivered the message, or reset, since the time-out.
            with self._exchange.lock:
                late = first_late()
            if late is not None:
                raise self._delivery.overdue(late, f"waited for {self.timeout_s} s")
        self._exchange.watchers.run(self.timeout_s)

    def clear_environment(self, env_id: str) -> None:
        """Begin the next epoch of an environment, dropping all its messages, including those in transit.

        Topics and subscriptions remain. The cost grows with this environment's channels only.
        """
        check_id("clear_environment: env_id", env_id)
        with self._open:
            namespace = self._namespaces.by_id.get(env_id)
            if namespace is None:
                return
        self._forget_traffic(namespace)
        # What arrives from now on is dropped by its old number.
        with self._exchange.lock:
            namespace.clear()

    def _forget_traffic(self, namespace: Namespace) -> None:
        # Before the next epoch begins: the transport forgets everything up to this call, which must not
        # include what another thread sends in that epoch. Outside the exchange's lock, as this may wait for a
        # thread that is sending.
        lease = namespace.lease
        self._delivery.reset(lease.key, lease.number, lease.epoch + 1)

    def get_environment_topics(self, env_id: str) -> list[str]:
        """Return the topics of an environment in the order they were created or first published to."""
        with self._open:
            namespace = self._namespaces.by_id.get(
                check_id("get_environment_topics: env_id", env_id)
            )
            return [] if namespace is None else namespace.topics()

    def join(self, env_id: str) -> int:
        """Lease an id to an environment, and return the number of the lease, which is never reused.

        Messages of earlier leases are no longer delivered.

        Raises:
            WrongStateError: if another environment holds the id.
        """
        with self._open:
            return self._namespaces.join(check_id("join: env_id", env_id))

    def leave(self, env_id: str) -> None:
        """Release an id, with its topics, messages, subscriptions and channels. Idempotent."""
        with self._open:
            namespace = self._namespaces.by_id.get(check_id("leave: env_id", env_id))
        if namespace is None:
            return
        self._forget_traffic(namespace)
        with self._exchange.lock:
            # Unless another thread was faster, after which the id may belong to another environment.
            if self._namespaces.by_id.get(env_id) is namespace:
                # From here on the channels refuse further use, although agents may still hold them.
                self._namespaces.leave(env_id)

    def begin_step(self, env_ids: Sequence[str], steps: Sequence[int]) -> None:
        """Begin a step of several environments. Each channel carries at most one action per step.

        steps: step number of each environment.

        Raises:
            ValueError: if a number is below the previous one of the epoch, or the lengths differ.
        """
        # The messages of the step before leave first. Read without the lock, as in `Delivery.flush`.
        if self._exchange.outgoing:
            self.flush()
        with self._open:
            # A record has one step number, and another thread may have published since the flush.
            self._exchange.seal()
            # A number that is too small stops the loop: the environments before it have begun their
            # step, those after it have not.
            for env_id, step in zip(env_ids, steps, strict=True):
                lease = self._namespaces.get(env_id).lease
                if lease.step is not None and step < lease.step:
                    raise ValueError(
                        f"begin_step: environment {env_id!r}: expected a step from {lease.step} on, "
                        f"got {step!r}"
                    )
                lease.step = step

    def channel(self, topic: Topic, env_id: str | None = None) -> Channel:
        """Return the channel from one agent to another, which is faster to use than its topic.

        Raises:
            TypeError: if the topic is a plain name, which has no address.
            ValueError: if the topic belongs to another environment, or is a broadcast, which has many
                recipients.
        """
        if not isinstance(topic, Topic):
            raise TypeError(f"channel: expected a Topic created by a TopicManager, got {topic!r}")
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
        """Flush, and wait until each channel has its message of the step. Drops those of earlier steps.

        deadline: time on the `time.monotonic` clock. Default: the broker's time-out, counted from
            now.

        Raises:
            MissingMessageError: if a message does not arrive in time. Names the environment,
                channel and step of the first missing message.
            SequenceGapError: if a message was lost.
            BrokerUnavailableError: if the transport fails or delays the message past the deadline.
        """
        # May have delivered messages of any environment, whose callbacks this thread then runs.
        self._delivery.await_messages(channels, deadline)
        self._exchange.watchers.run(self.timeout_s)

    def take_payloads(
        self, channels: Sequence[Channel], deadline: float | None = None
    ) -> list[dict[str, Any]]:
        """Wait for one message on each channel and consume it. Raises as `await_messages`."""
        self.await_messages(channels, deadline)
        # Held for the whole loop, so that no reset comes between the payloads of one level. If one
        # is missing, those taken before it are lost: `step_environments` then requires a reset of
        # all.
        with self._exchange.lock:
            payloads = []
            for channel in channels:
                queue = channel.queue
                # Inlined `take_payload`, to save a call per message. Another thread may have consumed it
                # since `await_messages`; the real `take_payload` then raises the error.
                if queue and not channel.lease.left and queue[0][0] == channel.lease.step:
                    channel.taken += 1
                    payloads.append(queue.pop(0)[3])
                else:
                    payloads.append(channel.take_payload())
            return payloads

    def flush(self, deadline: float | None = None) -> None:
        """Send the current hop, deliver messages that have arrived, and run their callbacks.

        Raises:
            BrokerUnavailableError: if the hop cannot be sent by the deadline; the next flush tries again.
        """
        # `Delivery.flush` checks it only if there is something to send.
        self._delivery.check_open()
        self._delivery.flush(deadline)
        # Last, and without any lock, because callbacks may use the broker.
        self._exchange.watchers.run(self.timeout_s)

    def tap(
        self, environments: Collection[str] | None = None, *, capacity: int = 1024
    ) -> MessageTap:
        """Return a view of future messages, from some environments or from all."""
        taps = self._exchange.watchers.taps
        with self._open:
            tap = MessageTap(environments, capacity, taps.remove)
            taps.append(tap)
        return tap

    def statistics(self) -> dict[str, int]:
        """Return counts of messages, records, environments and faults since the broker was created."""
        with self._exchange.lock:
            # The channels' counts belong together. Those of the traffic are written under other
            # locks and may be a hop apart.
            return {**self._namespaces.statistics(), **self._delivery.statistics()}

    @property
    def ledger(self) -> Ledger:
        """The ledger of all messages so far. Its `check` raises if any is lost or counted twice."""
        with self._exchange.lock:
            return self._namespaces.ledger()

    def environment_state(self, env_id: str) -> State:
        """Return an environment's state: its lease, epoch and step, and its unconsumed messages.

        Raises:
            WrongStateError: if no environment has the id.
            MissingMessageError: if a published message does not arrive within the time-out.
        """
        with self._open:
            namespace = self._namespaces.existing(env_id)
            channels = list(namespace.channels.values())
        # Messages in transit cannot be saved, so they are brought into the queues first.
        # No other thread may publish to the environment from here to the end. A message sent after
        # the wait would count as sent, but be in no queue, and be missing once the state is loaded.
        self._await_sent(channels)
        with self._exchange.lock:
            return namespace.state()

    def load_environment_state(self, env_id: str, state: State) -> None:
        """Restore an environment's state, from this or another broker. Messages in transit are dropped.

        Raises:
            WrongStateError: if no environment has the id.
        """
        with self._open:
            # The transport is not told: what is in transit carries another lease or epoch, and is
            # dropped on arrival.
            self._namespaces.load_state(env_id, state)

    def state(self) -> State:
        """Return the states of all environments, keyed by id."""
        # Over a copy, one environment after the other, as each waits without the lock.
        return {env_id: self.environment_state(env_id) for env_id in list(self._namespaces.by_id)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the states of all environments. Ids that are not in use are created."""
        for env_id, env_state in state.items():
            with self._open:
                self._namespaces.get(env_id)
            self.load_environment_state(env_id, env_state)

    def close(self) -> None:
        """Close the broker and its transport. Waiting threads raise ClosedError. Idempotent."""
        if self.hosts is not None:
            self.hosts.close()
        # Without the exchange's lock, which is never held while something waits: closing a Kafka
        # client may take seconds.
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
    """Create the transport for the arguments of `KafkaBroker`.

    Raises:
        ValueError: for an unknown mode, or an argument that does not apply to it.
        TypeError: if `transport` is not a Transport.
        ImportError: for "kafka" if its client is not installed.
    """
    if mode not in _MODES:
        raise ValueError(f"KafkaBroker: mode: expected one of {_MODES}, got {mode!r}")
    if not encoded and (mode == "kafka" or transport is not None):
        raise ValueError(
            "KafkaBroker: encoded=False passes references, which works only in memory; remove "
            "mode='kafka' or transport"
        )
    if transport is not None:
        if not isinstance(transport, Transport):
            raise TypeError(f"KafkaBroker: transport: expected a Transport, got {transport!r}")
        if bootstrap is not None or kafka:
            given = ["bootstrap"] * (bootstrap is not None) + list(kafka)
            raise ValueError(f"KafkaBroker: {given} require mode='kafka', got a transport")
        return transport
    if mode == "memory":
        if bootstrap is not None or kafka:
            given = ["bootstrap"] * (bootstrap is not None) + list(kafka)
            raise ValueError(f"KafkaBroker: {given} require mode='kafka', got mode='memory'")
        return MemoryTransport()
    if bootstrap is None:
        raise ValueError(
            "KafkaBroker: mode='kafka': bootstrap: expected 'host:port' of a broker, got None"
        )
    # Imported only now: the client is an optional dependency.
    kind = importlib.import_module("parllel.distributed.messaging.kafka").KafkaTransport
    return cast(Transport, kind(bootstrap, run, timeout_s=timeout_s, **kafka))


def _check_settings(run: object, capacity: object, timeout_s: object) -> None:
    """Validate arguments of `KafkaBroker`.

    Raises:
        ValueError: names the invalid argument.
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
    """Validate arguments of `KafkaBroker.publish`.

    Raises:
        TypeError: if one of them, or a field of the message, has the wrong type.
        ValueError: if an id is empty, or the message does not match the topic.
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
                f"publish: {name}: expected {one!r} for the topic {topic!r}, got {other!r}"
            )


def _check_custom_topic(call: str, topic: object) -> None:
    """Validate the name of a custom topic. Raises as `_check_message`."""
    if not isinstance(topic, str) or not topic:
        raise TypeError(
            f"{call}: topic: expected a Topic, or the name of a custom topic, got {topic!r}"
        )
