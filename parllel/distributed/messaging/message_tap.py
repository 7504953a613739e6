"""A bounded view of the messages that pass through a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.types import Closeable


class MessageTap(Closeable):
    """The latest messages of a broker, for monitoring. Returned by `KafkaBroker.tap`.

    Payloads are the objects that consumers receive, so do not modify them.

    Args:
        environments: ids of the environments to watch; None for all.
        capacity: number of messages kept; when it is full, the oldest are dropped.
        on_close: function called once with the tap when it is closed.

    Attributes:
        seen: number of messages offered, including dropped ones.
        dropped: number of messages that were overwritten before `take` returned them.
    """

    def __init__(self, environments: Collection[str] | None, capacity: int, on_close: Any) -> None:
        self._environments = None if environments is None else frozenset(environments)
        self._messages: deque[KafkaMessage] = deque(maxlen=capacity)
        self._on_close = on_close
        self.seen = 0
        self.dropped = 0

    def offer(self, message: KafkaMessage) -> None:
        """Store the message if its environment is watched."""
        if self._environments is not None and message.env_id not in self._environments:
            return
        # The broker's lock is held here, but `take` does without it: a message that it pops between
        # the last two lines counts as dropped, too.
        self.seen += 1
        self.dropped += len(self._messages) == self._messages.maxlen
        self._messages.append(message)

    def take(self) -> list[KafkaMessage]:
        """Return the messages since the last call, oldest first."""
        # Deliveries append while this runs: popping one by one loses none, as copying and clearing would.
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages

    def close(self) -> None:
        """Stop watching. Idempotent."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(self)
