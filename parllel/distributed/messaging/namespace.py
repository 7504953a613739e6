"""One environment's part of a broker."""

from __future__ import annotations

import numpy as np

from parllel.distributed.messaging.channel import Channel, ChannelKey
from parllel.distributed.messaging.exchange import Exchange, Outbox
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.lease import Lease
from parllel.distributed.messaging.topic import Address, Topic
from parllel.types import State

# How a channel adds to the totals of its broker.
_COUNTS = ("published", "consumed", "late", "overwritten")


class Namespace:
    """The channels, topics and listeners of one environment, for as long as it has its id.

    The caller holds the broker's lock.

    Attributes:
        lease: with epoch and step.
        channels: by their keys.
        listeners: of each sender of broadcasts, the agents that each message goes to; "" is for callbacks.
        ways: for each kind and custom topic, the channels by sender and recipient as they are in records.
    """

    __slots__ = (
        "_arrivals",
        "_exchange",
        "_outboxes",
        "_topics",
        "channels",
        "lease",
        "listeners",
        "ways",
    )

    def __init__(self, exchange: Exchange, lease: Lease) -> None:
        self._exchange = exchange
        self.lease = lease
        self.channels: dict[tuple[str | None, str, str, str], Channel] = {}
        self.listeners: dict[str, list[str]] = {}
        self._arrivals: dict[tuple[str, str], list[Channel]] = {}
        self._outboxes: dict[tuple[str, str | None], Outbox] = {}
        self.ways: dict[tuple[str, str | None], dict[tuple[str | bytes, str | bytes], Channel]] = {}
        # A plain name may be spelt as a topic is, and means another.
        self._topics: dict[tuple[bool, str], str] = {}

    def create_topic(self, topic: str, latest: bool = False) -> None:
        """Note that there is a topic, and make the channel of one that has one."""
        self._topics.setdefault((isinstance(topic, Topic), topic), topic)
        if isinstance(topic, Topic) and topic.address.recipient is not None:
            channel = self.channel_of(topic.address)
            if latest:
                channel.keep_latest_only()

    def topics(self) -> list[str]:
        """Return the topics that were created or written to."""
        return list(self._topics.values())

    def channels_from(self, topic: str, message: KafkaMessage) -> list[Channel]:
        """Return the channels that a message goes over."""
        if not isinstance(topic, Topic):
            kind, sender, recipient = message.message_type, message.sender_id, message.recipient_id
            return [self.channel(ChannelKey(topic, kind.value, sender, recipient))]
        address = topic.address
        if address.recipient is not None:
            return [self.channel_of(address)]
        listeners = self.listeners.get(address.sender, ())
        return [self.channel_of(address, agent_id) for agent_id in listeners]

    def custom_topic_to(self, custom_topic: str, agent_id: str) -> list[Channel]:
        """Return the channels of a custom topic that end at an agent."""
        return list(self._arrivals.get((custom_topic, agent_id), ()))

    def channel_of(self, address: Address, recipient: str | None = None) -> Channel:
        """Return the channel of a topic; of a broadcast that to one recipient, "" for callbacks."""
        to = address.recipient if recipient is None else recipient
        assert to is not None
        return self.channel(ChannelKey(None, address.kind.value, address.sender, to))

    def channel(self, key: ChannelKey) -> Channel:
        """Return a channel, which is made if it is not there."""
        channel = self.channels.get(key)
        if channel is None:
            box = (key.kind, key.custom_topic)
            outbox = self._outboxes.get(box)
            if outbox is None:
                outbox = self._exchange.outbox(self.lease, key.kind, key.custom_topic)
                self._outboxes[box] = outbox
                self.ways[box] = {}
            channel = self.channels[key] = Channel(self._exchange, outbox, key)
            self.ways[box][channel.names] = channel
            if key.custom_topic is not None:
                self._arrivals.setdefault((key.custom_topic, key.recipient), []).append(channel)
                channel.subscriptions = self._exchange.subscriptions.get(key.custom_topic, ())
                if key.custom_topic in self._exchange.latest_topics:
                    channel.keep_latest_only()
        return channel

    def listen(self, address: Address, agent_id: str) -> Channel:
        """Send broadcasts to an agent, from now on; "" stands for the callbacks."""
        listeners = self.listeners.setdefault(address.sender, [])
        if agent_id not in listeners:
            listeners.append(agent_id)
        return self.channel_of(address, agent_id)

    def unlisten(self, address: Address, agent_id: str) -> None:
        """Send an agent, or the callbacks, no more broadcasts."""
        listeners = self.listeners.get(address.sender, [])
        if agent_id in listeners:
            listeners.remove(agent_id)

    def clear(self) -> None:
        """Begin the next epoch; the cost is that of the environment's own channels."""
        totals = self._exchange.totals
        for channel in self.channels.values():
            if channel.sent:
                gone = channel.taken + channel.late + channel.overwritten
                totals["cleared"] += channel.sent - gone
                for name, count in zip(_COUNTS, channel.counts(), strict=True):
                    totals[name] += count
            channel.restart()
        for outbox in self._outboxes.values():
            outbox.clear()
        self.lease.begin_epoch()

    def counts(self) -> tuple[int, ...]:
        """Count messages of this epoch: sent, consumed, late, replaced, queued."""
        sums = np.zeros(5, np.int64)
        for channel in self.channels.values():
            if channel.sent:
                # What was sent and has not come is on its way; what came is in the queue.
                waiting = channel.sent - channel.received + len(channel.queue)
                sums += (*channel.counts(), waiting)
        return tuple(int(n) for n in sums)

    def state(self) -> State:
        """Return where the environment stands, with the messages that wait for their consumers.

        Raises:
            WireError: if a payload that was handed on as a reference cannot be saved.
        """
        lease = self.lease
        channels = [channel.state() for channel in self.channels.values() if channel.sent]
        return {
            "lease": lease.number,
            "epoch": lease.epoch,
            "step": lease.step,
            "channels": channels,
        }

    def load_state(self, state: State, number: int) -> None:
        """Restore a state under the lease of this number."""
        self.clear()
        lease = self.lease
        lease.number = number
        lease.epoch, lease.step = state["epoch"], state["step"]
        for saved in state["channels"]:
            self.channel(ChannelKey(*saved["key"])).load_state(saved)
