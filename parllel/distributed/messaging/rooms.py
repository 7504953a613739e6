"""The environments of a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parllel.distributed.messaging.edge import Edge
from parllel.distributed.messaging.exchange import Callback, Exchange, Subscription
from parllel.distributed.messaging.place import Place
from parllel.distributed.messaging.room import Room
from parllel.distributed.messaging.topic import Topic
from parllel.errors import WrongStateError
from parllel.logging.ledger import Ledger
from parllel.types import State

_COUNTS = ("published", "consumed", "late", "overwritten", "queued")


class Rooms:
    """Give ids to environments, and keep what each of them has; the caller holds the broker's lock.

    Attributes:
        by_id: the rooms of those that have joined, or were written to.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.by_id: dict[str, Room] = {}
        self._next_incarnation = 1

    def get(self, env_id: str) -> Room:
        """Return the room of an id; who writes before joining makes it."""
        room = self.by_id.get(env_id)
        if room is None:
            room = Room(self._exchange, Place(env_id, self._new_incarnation()))
            self.by_id[env_id] = room
        return room

    def _new_incarnation(self) -> int:
        self._next_incarnation += 1
        return self._next_incarnation - 1

    def existing(self, env_id: str) -> Room:
        """Return the room of an id that is in use.

        Raises:
            WrongStateError: if it is not.
        """
        room = self.by_id.get(env_id)
        if room is None:
            raise WrongStateError(
                f"KafkaBroker: no environment has the id {env_id!r}; join it first"
            )
        return room

    def join(self, env_id: str) -> int:
        """Take an id; raise as `KafkaBroker.join`."""
        room = self.get(env_id)
        if room.place.joined:
            raise WrongStateError(
                f"KafkaBroker: environment id {env_id!r} is in use; give each environment an id of its own "
                "(VectorizedKafkaEnv: an env_prefix of its own), or let the other leave first"
            )
        # Someone may have written to the id when nobody had it.
        if any(edge.sent for edge in room.edges.values()):
            room.clear()
        room.place.joined = True
        return room.place.incarnation

    def leave(self, env_id: str) -> Room | None:
        """Give an id up, and return what it had."""
        room = self.by_id.pop(env_id, None)
        if room is not None:
            room.clear()
            room.place.left = True
        return room

    def edges_to(self, topic: str, agent_id: str, env_id: str) -> list[Edge]:
        """Return the edges that end at an agent; raise as `KafkaBroker.consume`."""
        room = self.by_id.get(env_id)
        if not isinstance(topic, Topic):
            return [] if room is None else room.channel_to(topic, agent_id)
        address = topic.address
        if env_id != address.environment:
            raise ValueError(f"consume: expected a topic of environment {env_id!r}, got {topic!r}")
        if address.recipient is None:
            if room is None or agent_id not in room.listeners.get(address.sender, ()):
                raise ValueError(
                    f"consume: agent {agent_id!r} has not subscribed to {topic!r}; call "
                    f"subscribe(topic, agent_id={agent_id!r}) before it is published to"
                )
            return [room.edge_of(address, agent_id)]
        if agent_id != address.recipient:
            raise ValueError(
                f"consume: expected a topic for agent {agent_id!r}, got {topic!r}, which is for "
                f"{address.recipient!r}"
            )
        if room is None:
            return []
        edge = room.edges.get((None, address.kind.value, address.sender, address.recipient))
        return [] if edge is None else [edge]

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
            return self._subscribe_channel(topic, subscription)
        room = self.get(topic.address.environment)
        room.create_topic(topic)
        broadcast = topic.address.recipient is None
        to = agent_id or "" if broadcast else None
        if to is not None:
            room.listen(topic.address, to)
        edge = room.edge_of(topic.address, to)
        if subscription is not None:
            edge.subscriptions = [*edge.subscriptions, subscription]

        def end() -> None:
            with self._exchange.lock:
                if subscription is not None:
                    subscription.active = False
                    edge.subscriptions = _without(edge.subscriptions, subscription)
                if to or (to == "" and not edge.subscriptions):
                    room.unlisten(topic.address, to)

        return end

    def _subscribe_channel(self, name: str, subscription: Subscription) -> Callable[[], None]:
        of_all = self._exchange.subscriptions
        self._set_channel(name, [*of_all.get(name, ()), subscription])

        def end() -> None:
            with self._exchange.lock:
                subscription.active = False
                self._set_channel(name, _without(of_all.get(name, ()), subscription))

        return end

    def _set_channel(self, name: str, subscriptions: list[Subscription]) -> None:
        self._exchange.subscriptions[name] = subscriptions
        if not subscriptions:
            del self._exchange.subscriptions[name]
        for room in self.by_id.values():
            for edge in room.edges.values():
                if edge.key.channel == name:
                    edge.subscriptions = subscriptions

    def load_state(self, env_id: str, state: State) -> None:
        """Let an environment go on from a state.

        It takes the number of the saved incarnation where that is new here. Otherwise what this broker has
        sent under that number could still be on its way.
        """
        room = self.existing(env_id)
        number, place = state["incarnation"], room.place
        unused = place.epoch == 0 and not any(edge.sent for edge in room.edges.values())
        if number >= self._next_incarnation:
            self._next_incarnation = number + 1
        elif number != place.incarnation or not unused:
            number = self._new_incarnation()
        room.load_state(state, number)

    def ledger(self) -> Ledger:
        """Return what became of all messages."""
        ledger = Ledger("published = consumed + cleared + late + overwritten + queued")
        ledger.add(**self._exchange.totals)
        for room in self.by_id.values():
            ledger.add(**dict(zip(_COUNTS, room.counts(), strict=True)))
        return ledger

    def statistics(self) -> dict[str, int]:
        """Return what became of all messages, and how much there is now."""
        exchange = self._exchange
        return {
            **self.ledger().counts(),
            "duplicates": exchange.duplicates,
            "callback_failures": exchange.watchers.failures,
            "environments": len(self.by_id),
            "edges": sum(len(room.edges) for room in self.by_id.values()),
        }


def _without(
    subscriptions: Sequence[Subscription], subscription: Subscription
) -> list[Subscription]:
    return [other for other in subscriptions if other is not subscription]
