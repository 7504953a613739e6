"""The environments of a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.exchange import Callback, Exchange, Subscription
from parllel.distributed.messaging.lease import Lease
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.topic import Topic
from parllel.errors import WrongStateError
from parllel.logging.ledger import Ledger
from parllel.types import State

_COUNTS = ("published", "consumed", "late", "overwritten", "queued")


class Namespaces:
    """Give ids to environments, and keep what each of them has; the caller holds the broker's lock.

    Attributes:
        by_id: the namespaces of those that have joined, or were written to.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.by_id: dict[str, Namespace] = {}
        self._next_lease_number = 1

    def get(self, env_id: str) -> Namespace:
        """Return the namespace of an id; who writes before joining makes it."""
        namespace = self.by_id.get(env_id)
        if namespace is None:
            namespace = Namespace(self._exchange, Lease(env_id, self._new_lease_number()))
            self.by_id[env_id] = namespace
        return namespace

    def _new_lease_number(self) -> int:
        self._next_lease_number += 1
        return self._next_lease_number - 1

    def existing(self, env_id: str) -> Namespace:
        """Return the namespace of an id that is in use.

        Raises:
            WrongStateError: if it is not.
        """
        namespace = self.by_id.get(env_id)
        if namespace is None:
            raise WrongStateError(
                f"KafkaBroker: no environment has the id {env_id!r}; join it first"
            )
        return namespace

    def join(self, env_id: str) -> int:
        """Take an id; raise as `KafkaBroker.join`."""
        namespace = self.get(env_id)
        if namespace.lease.joined:
            raise WrongStateError(
                f"KafkaBroker: environment id {env_id!r} is in use; give each environment an id of its own "
                "(VectorizedKafkaEnv: an env_prefix of its own), or let the other leave first"
            )
        # Someone may have written to the id when nobody had it.
        if any(channel.sent for channel in namespace.channels.values()):
            namespace.clear()
        namespace.lease.joined = True
        return namespace.lease.number

    def leave(self, env_id: str) -> Namespace | None:
        """Give an id up, and return what it had."""
        namespace = self.by_id.pop(env_id, None)
        if namespace is not None:
            namespace.clear()
            namespace.lease.left = True
        return namespace

    def channels_to(self, topic: str, agent_id: str, env_id: str) -> list[Channel]:
        """Return the channels that end at an agent; raise as `KafkaBroker.consume`."""
        namespace = self.by_id.get(env_id)
        if not isinstance(topic, Topic):
            return [] if namespace is None else namespace.custom_topic_to(topic, agent_id)
        address = topic.address
        if env_id != address.environment:
            raise ValueError(f"consume: expected a topic of environment {env_id!r}, got {topic!r}")
        if address.recipient is None:
            if namespace is None or agent_id not in namespace.listeners.get(address.sender, ()):
                raise ValueError(
                    f"consume: agent {agent_id!r} has not subscribed to {topic!r}; call "
                    f"subscribe(topic, agent_id={agent_id!r}) before it is published to"
                )
            return [namespace.channel_of(address, agent_id)]
        if agent_id != address.recipient:
            raise ValueError(
                f"consume: expected a topic for agent {agent_id!r}, got {topic!r}, which is for "
                f"{address.recipient!r}"
            )
        if namespace is None:
            return []
        channel = namespace.channels.get(
            (None, address.kind.value, address.sender, address.recipient)
        )
        return [] if channel is None else [channel]

    def subscribe(
        self, topic: str, callback: Callback | None, agent_id: str | None
    ) -> Callable[[], None]:
        """Let a callback see messages; return a function that ends this."""
        if agent_id is not None and not (
            isinstance(topic, Topic) and topic.address.recipient is None
        ):
            raise ValueError(
                f"subscribe: agent_id: expected None, since {topic!r} is no broadcast, got {agent_id!r}; "
                "agents consume from it without a subscription"
            )
        subscription = None if callback is None else Subscription(callback)
        if not isinstance(topic, Topic):
            assert subscription is not None
            return self._subscribe_custom_topic(topic, subscription)
        namespace = self.get(topic.address.environment)
        namespace.create_topic(topic)
        broadcast = topic.address.recipient is None
        to = agent_id or "" if broadcast else None
        if to is not None:
            namespace.listen(topic.address, to)
        channel = namespace.channel_of(topic.address, to)
        if subscription is not None:
            channel.subscriptions = [*channel.subscriptions, subscription]

        def end() -> None:
            with self._exchange.lock:
                if subscription is not None:
                    subscription.active = False
                    channel.subscriptions = _without(channel.subscriptions, subscription)
                if to or (to == "" and not channel.subscriptions):
                    namespace.unlisten(topic.address, to)

        return end

    def _subscribe_custom_topic(self, name: str, subscription: Subscription) -> Callable[[], None]:
        of_all = self._exchange.subscriptions
        self._set_custom_topic(name, [*of_all.get(name, ()), subscription])

        def end() -> None:
            with self._exchange.lock:
                subscription.active = False
                self._set_custom_topic(name, _without(of_all.get(name, ()), subscription))

        return end

    def _set_custom_topic(self, name: str, subscriptions: list[Subscription]) -> None:
        self._exchange.subscriptions[name] = subscriptions
        if not subscriptions:
            del self._exchange.subscriptions[name]
        for namespace in self.by_id.values():
            for channel in namespace.channels.values():
                if channel.key.custom_topic == name:
                    channel.subscriptions = subscriptions

    def load_state(self, env_id: str, state: State) -> None:
        """Let an environment go on from a state.

        It takes the number of the saved lease where that is new here. Otherwise what this broker has
        sent under that number could still be on its way.
        """
        namespace = self.existing(env_id)
        number, lease = state["lease"], namespace.lease
        unused = lease.epoch == 0 and not any(
            channel.sent for channel in namespace.channels.values()
        )
        if number >= self._next_lease_number:
            self._next_lease_number = number + 1
        elif number != lease.number or not unused:
            number = self._new_lease_number()
        namespace.load_state(state, number)

    def ledger(self) -> Ledger:
        """Return what became of all messages."""
        ledger = Ledger("published = consumed + cleared + late + overwritten + queued")
        ledger.add(**self._exchange.totals)
        for namespace in self.by_id.values():
            ledger.add(**dict(zip(_COUNTS, namespace.counts(), strict=True)))
        return ledger

    def statistics(self) -> dict[str, int]:
        """Return what became of all messages, and how much there is now."""
        exchange = self._exchange
        return {
            **self.ledger().counts(),
            "duplicates": exchange.duplicates,
            "callback_failures": exchange.watchers.failures,
            "environments": len(self.by_id),
            "channels": sum(len(namespace.channels) for namespace in self.by_id.values()),
        }


def _without(
    subscriptions: Sequence[Subscription], subscription: Subscription
) -> list[Subscription]:
    return [other for other in subscriptions if other is not subscription]
