"""A view of what passes through a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.types import Closeable


class MessageTap(Closeable):
    """Keep the messages that arrived last, for monitoring; `KafkaBroker.tap` returns it.

    Payloads are those that the consumers get: change none.

    Args:
        environments: ids of those whose messages are kept; None for all.
        capacity: messages that are kept; older ones are dropped for newer.
        on_close: is called once.

    Attributes:
        seen: messages, those that were dropped too.
        dropped: messages that `take` did not return in time.
    """

    def __init__(self, environments: Collection[str] | None, capacity: int, on_close: Any) -> None:
        self._environments = None if environments is None else frozenset(environments)
        self._messages: deque[KafkaMessage] = deque(maxlen=capacity)
        self._on_close = on_close
        self.seen = 0
        self.dropped = 0

    def offer(self, message: KafkaMessage) -> None:
        """Keep a message, if it is of one of the environments."""
        if self._environments is not None and message.env_id not in self._environments:
            return
        self.seen += 1
        self.dropped += len(self._messages) == self._messages.maxlen
        self._messages.append(message)

    def take(self) -> list[KafkaMessage]:
        """Return what arrived since the last call, the oldest first."""
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages

    def close(self) -> None:
        """Keep nothing more."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(self)
