"""One environment's part of a broker."""

from __future__ import annotations

import numpy as np

from parllel.distributed.messaging.edge import Edge, EdgeKey
from parllel.distributed.messaging.exchange import Exchange, Outbox
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.place import Place
from parllel.distributed.messaging.topic import Address, Topic
from parllel.types import State

# How an edge adds to the totals of its broker.
_COUNTS = ("published", "consumed", "late", "overwritten")


class Room:
    """The edges, topics and listeners of one environment, for as long as it has its id.

    The caller holds the broker's lock.

    Attributes:
        place: with epoch and step.
        edges: by their keys.
        listeners: of each sender of broadcasts, the agents that each message goes to; "" is for callbacks.
        ways: for each kind and channel, the edges by sender and recipient as they are in records.
    """

    __slots__ = (
        "_arrivals",
        "_exchange",
        "_outboxes",
        "_topics",
        "edges",
        "listeners",
        "place",
        "ways",
    )

    def __init__(self, exchange: Exchange, place: Place) -> None:
        self._exchange = exchange
        self.place = place
        self.edges: dict[tuple[str | None, str, str, str], Edge] = {}
        self.listeners: dict[str, list[str]] = {}
        self._arrivals: dict[tuple[str, str], list[Edge]] = {}
        self._outboxes: dict[tuple[str, str | None], Outbox] = {}
        self.ways: dict[tuple[str, str | None], dict[tuple[str | bytes, str | bytes], Edge]] = {}
        # A plain name may be spelt as a topic is, and means another.
        self._topics: dict[tuple[bool, str], str] = {}

    def create_topic(self, topic: str, latest: bool = False) -> None:
        """Note that there is a topic, and make the edge of one that has one."""
        self._topics.setdefault((isinstance(topic, Topic), topic), topic)
        if isinstance(topic, Topic) and topic.address.recipient is not None:
            edge = self.edge_of(topic.address)
            if latest:
                edge.make_latest()

    def topics(self) -> list[str]:
        """Return the topics that were created or written to."""
        return list(self._topics.values())

    def edges_from(self, topic: str, message: KafkaMessage) -> list[Edge]:
        """Return the edges that a message goes over."""
        if not isinstance(topic, Topic):
            kind, sender, recipient = message.message_type, message.sender_id, message.recipient_id
            return [self.edge(EdgeKey(topic, kind.value, sender, recipient))]
        address = topic.address
        if address.recipient is not None:
            return [self.edge_of(address)]
        listeners = self.listeners.get(address.sender, ())
        return [self.edge_of(address, agent_id) for agent_id in listeners]

    def channel_to(self, channel: str, agent_id: str) -> list[Edge]:
        """Return the edges of a channel that end at an agent."""
        return list(self._arrivals.get((channel, agent_id), ()))

    def edge_of(self, address: Address, recipient: str | None = None) -> Edge:
        """Return the edge of a topic; of a broadcast that to one recipient, "" for callbacks."""
        to = address.recipient if recipient is None else recipient
        assert to is not None
        return self.edge(EdgeKey(None, address.kind.value, address.sender, to))

    def edge(self, key: EdgeKey) -> Edge:
        """Return an edge, which is made if it is not there."""
        edge = self.edges.get(key)
        if edge is None:
            box = (key.kind, key.channel)
            outbox = self._outboxes.get(box)
            if outbox is None:
                outbox = self._exchange.outbox(self.place, key.kind, key.channel)
                self._outboxes[box] = outbox
                self.ways[box] = {}
            edge = self.edges[key] = Edge(self._exchange, outbox, key)
            self.ways[box][edge.names] = edge
            if key.channel is not None:
                self._arrivals.setdefault((key.channel, key.recipient), []).append(edge)
                edge.subscriptions = self._exchange.subscriptions.get(key.channel, ())
                if key.channel in self._exchange.latest_channels:
                    edge.make_latest()
        return edge

    def listen(self, address: Address, agent_id: str) -> Edge:
        """Send broadcasts to an agent, from now on; "" stands for the callbacks."""
        listeners = self.listeners.setdefault(address.sender, [])
        if agent_id not in listeners:
            listeners.append(agent_id)
        return self.edge_of(address, agent_id)

    def unlisten(self, address: Address, agent_id: str) -> None:
        """Send an agent, or the callbacks, no more broadcasts."""
        listeners = self.listeners.get(address.sender, [])
        if agent_id in listeners:
            listeners.remove(agent_id)

    def clear(self) -> None:
        """Begin the next epoch; the cost is that of the environment's own edges."""
        totals = self._exchange.totals
        for edge in self.edges.values():
            if edge.sent:
                gone = edge.taken + edge.late + edge.overwritten
                totals["cleared"] += edge.sent - gone
                for name, count in zip(_COUNTS, edge.counts(), strict=True):
                    totals[name] += count
            edge.restart()
        for outbox in self._outboxes.values():
            outbox.clear()
        self.place.begin_epoch()

    def counts(self) -> tuple[int, ...]:
        """Return what the edges sent, consumed, dropped as late, replaced, and still have, in this epoch."""
        sums = np.zeros(5, np.int64)
        for edge in self.edges.values():
            if edge.sent:
                # What was sent and has not come is on its way; what came is in the queue.
                waiting = edge.sent - edge.received + len(edge.queue)
                sums += (*edge.counts(), waiting)
        return tuple(int(n) for n in sums)

    def state(self) -> State:
        """Return where the environment stands, with the messages that wait for their consumers.

        Raises:
            WireError: if a payload that was handed on as a reference cannot be saved.
        """
        place = self.place
        edges = [edge.state() for edge in self.edges.values() if edge.sent]
        return {
            "incarnation": place.incarnation,
            "epoch": place.epoch,
            "step": place.step,
            "edges": edges,
        }

    def load_state(self, state: State, incarnation: int) -> None:
        """Go on from a state, as this incarnation."""
        self.clear()
        place = self.place
        place.incarnation = incarnation
        place.epoch, place.step = state["epoch"], state["step"]
        for saved in state["edges"]:
            self.edge(EdgeKey(*saved["key"])).load_state(saved)
