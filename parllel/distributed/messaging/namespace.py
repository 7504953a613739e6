"""One environment's share of a broker."""

from __future__ import annotations

import numpy as np

from parllel.distributed.messaging.channel import Channel, ChannelKey, SentChannel
from parllel.distributed.messaging.exchange import Exchange, Outbox
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.lease import Lease
from parllel.distributed.messaging.topic import Address, Topic
from parllel.types import State

# Names of `Channel.counts` in the totals of the broker.
_COUNTS = ("published", "consumed", "late", "overwritten")


class Namespace:
    """The channels, topics and listeners of one environment, for as long as it holds its id.

    Not thread-safe: callers hold the broker's lock.

    Attributes:
        lease: the environment's lease, with epoch and step.
        channels: all channels, keyed by `ChannelKey`.
        listeners: recipients of broadcasts, keyed by sender. The recipient "" is the channel for
            callbacks.
        remote: ids of the agents that run in other processes. Set before their channels are created.
        ways: for each kind and custom topic, channels by sender and recipient as encoded in records.
    """

    __slots__ = (
        "_arrivals",
        "_exchange",
        "_outboxes",
        "_topics",
        "channels",
        "lease",
        "listeners",
        "remote",
        "ways",
    )

    def __init__(self, exchange: Exchange, lease: Lease) -> None:
        self._exchange = exchange
        self.lease = lease
        self.channels: dict[tuple[str | None, str, str, str], Channel] = {}
        self.listeners: dict[str, list[str]] = {}
        self.remote: frozenset[str] = frozenset()
        self._arrivals: dict[tuple[str, str], list[Channel]] = {}
        self._outboxes: dict[tuple[str, str | None], Outbox] = {}
        self.ways: dict[tuple[str, str | None], dict[tuple[str | bytes, str | bytes], Channel]] = {}
        # A plain name may be spelt as a topic is, and means another.
        self._topics: dict[tuple[bool, str], str] = {}

    def create_topic(self, topic: str, latest: bool = False) -> None:
        """Register a topic, and create its channel if it has a single recipient."""
        self._topics.setdefault((isinstance(topic, Topic), topic), topic)
        if isinstance(topic, Topic) and topic.address.recipient is not None:
            channel = self.channel_of(topic.address)
            if latest:
                channel.keep_latest_only()

    def topics(self) -> list[str]:
        """Return the topics that were created or published to, in that order."""
        return list(self._topics.values())

    def channels_from(self, topic: str, message: KafkaMessage) -> list[Channel]:
        """Return the channels that carry a message."""
        if not isinstance(topic, Topic):
            kind, sender, recipient = message.message_type, message.sender_id, message.recipient_id
            return [self.channel(ChannelKey(topic, kind.value, sender, recipient))]
        address = topic.address
        if address.recipient is not None:
            return [self.channel_of(address)]
        listeners = self.listeners.get(address.sender, ())
        return [self.channel_of(address, agent_id) for agent_id in listeners]

    def custom_topic_to(self, custom_topic: str, agent_id: str) -> list[Channel]:
        """Return the channels of a custom topic to an agent."""
        return list(self._arrivals.get((custom_topic, agent_id), ()))

    def channel_of(self, address: Address, recipient: str | None = None) -> Channel:
        """Return the channel of an address.

        recipient: required for a broadcast; "" is the recipient for callbacks.
        """
        to = address.recipient if recipient is None else recipient
        assert to is not None
        return self.channel(ChannelKey(None, address.kind.value, address.sender, to))

    def channel(self, key: ChannelKey) -> Channel:
        """Return a channel, created on first use."""
        channel = self.channels.get(key)
        if channel is None:
            # Channels of one kind and topic share an outbox, so that a hop sends one record for all of them.
            box = (key.kind, key.custom_topic)
            outbox = self._outboxes.get(box)
            if outbox is None:
                outbox = self._exchange.outbox(self.lease, key.kind, key.custom_topic)
                self._outboxes[box] = outbox
                self.ways[box] = {}
            kind = SentChannel if key.recipient in self.remote else Channel
            channel = self.channels[key] = kind(self._exchange, outbox, key)
            self.ways[box][channel.names] = channel
            if key.custom_topic is not None:
                self._arrivals.setdefault((key.custom_topic, key.recipient), []).append(channel)
                # Subscriptions to a plain name cover all environments, also those that join later.
                channel.subscriptions = self._exchange.subscriptions.get(key.custom_topic, ())
                if key.custom_topic in self._exchange.latest_topics:
                    channel.keep_latest_only()
        return channel

    def listen(self, address: Address, agent_id: str) -> Channel:
        """Also send a sender's future broadcasts to an agent, or to callbacks for ""."""
        listeners = self.listeners.setdefault(address.sender, [])
        if agent_id not in listeners:
            listeners.append(agent_id)
        return self.channel_of(address, agent_id)

    def unlisten(self, address: Address, agent_id: str) -> None:
        """Stop sending broadcasts to an agent, or to callbacks."""
        listeners = self.listeners.get(address.sender, [])
        if agent_id in listeners:
            listeners.remove(agent_id)

    def clear(self) -> None:
        """Begin the next epoch. The cost grows with this environment's channels only."""
        totals = self._exchange.totals
        for channel in self.channels.values():
            # Counters restart with the epoch, so they are added to the broker's totals before that.
            if channel.sent:
                gone = channel.taken + channel.late + channel.overwritten
                totals["cleared"] += channel.sent - gone
                for name, count in zip(_COUNTS, channel.counts(), strict=True):
                    totals[name] += count
            channel.restart()
        # Unsent messages are dropped here. Those in transit carry the old epoch, and are dropped on arrival.
        for outbox in self._outboxes.values():
            outbox.clear()
        self.lease.begin_epoch()

    def counts(self) -> tuple[int, ...]:
        """Count messages of this epoch: sent, consumed, late, replaced, queued."""
        sums = np.zeros(5, np.int64)
        for channel in self.channels.values():
            if channel.sent:
                # Sent but not received: in transit. Received but not consumed: in the queue.
                waiting = channel.sent - channel.received + len(channel.queue)
                sums += (*channel.counts(), waiting)
        return tuple(int(n) for n in sums)

    def state(self) -> State:
        """Return lease, epoch, step and channels, with the messages waiting in them.

        Raises:
            WireError: if a payload that was passed by reference cannot be saved.
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
        """Restore a state under this lease number."""
        self.clear()
        lease = self.lease
        lease.number = number
        lease.epoch, lease.step = state["epoch"], state["step"]
        for saved in state["channels"]:
            self.channel(ChannelKey(*saved["key"])).load_state(saved)
