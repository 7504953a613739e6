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
    """Assign ids to environments and hold their namespaces. Callers hold the broker's lock.

    Attributes:
        by_id: namespaces of the environments that joined, or were published to.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.by_id: dict[str, Namespace] = {}
        self._next_lease_number = 1

    def get(self, env_id: str) -> Namespace:
        """Return the namespace of an id, created on first use, even before anyone joins."""
        namespace = self.by_id.get(env_id)
        if namespace is None:
            namespace = Namespace(self._exchange, Lease(env_id, self._new_lease_number()))
            self.by_id[env_id] = namespace
        return namespace

    def _new_lease_number(self) -> int:
        self._next_lease_number += 1
        return self._next_lease_number - 1

    def existing(self, env_id: str) -> Namespace:
        """Return the namespace of an id in use.

        Raises:
            WrongStateError: if no environment has the id.
        """
        namespace = self.by_id.get(env_id)
        if namespace is None:
            raise WrongStateError(
                f"KafkaBroker: no environment has the id {env_id!r}; join it first"
            )
        return namespace

    def join(self, env_id: str) -> int:
        """Lease an id. Raises the errors of `KafkaBroker.join`."""
        namespace = self.get(env_id)
        if namespace.lease.joined:
            raise WrongStateError(
                f"KafkaBroker: environment id {env_id!r} is in use; give each environment a "
                "different id (VectorizedKafkaEnv: a different env_prefix), or call leave for the "
                "other environment first"
            )
        # Messages published before anyone joined must not reach the environment that joins now.
        if any(channel.sent for channel in namespace.channels.values()):
            namespace.clear()
        namespace.lease.joined = True
        return namespace.lease.number

    def leave(self, env_id: str) -> None:
        """Release an id."""
        namespace = self.by_id.pop(env_id, None)
        if namespace is not None:
            namespace.clear()
            # Channels outlive the namespace in the hands of agents; `left` makes them refuse further use.
            namespace.lease.left = True

    def channels_to(self, topic: str, agent_id: str, env_id: str) -> list[Channel]:
        """Return the channels to an agent. Raises the errors of `KafkaBroker.consume`."""
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
                    f"subscribe(topic, agent_id={agent_id!r}) before anything is published to it"
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
        """Register a callback or listener, and return a function that cancels it."""
        if agent_id is not None and not (
            isinstance(topic, Topic) and topic.address.recipient is None
        ):
            raise ValueError(
                f"subscribe: agent_id: expected None, since {topic!r} is not a broadcast, got {agent_id!r}; "
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
                    # Calls that are queued already look at this before they run.
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
        """Restore an environment from a state.

        Keeps the saved lease number if this broker never used it. Otherwise it assigns a new one, because
        messages sent under the saved number may still be in transit.
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
        """Account for all messages: consumed, cleared, late, overwritten or queued."""
        ledger = Ledger("published = consumed + cleared + late + overwritten + queued")
        ledger.add(**self._exchange.totals)
        for namespace in self.by_id.values():
            ledger.add(**dict(zip(_COUNTS, namespace.counts(), strict=True)))
        return ledger

    def statistics(self) -> dict[str, int]:
        """Return the ledger's counts, and the current numbers of environments and channels."""
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
