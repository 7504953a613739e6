"""A callback, for as long as it is wanted."""

from __future__ import annotations

from collections.abc import Callable

from parllel.distributed.messaging.kafka_message import KafkaMessage

Callback = Callable[[KafkaMessage], object]


class Subscription:
    """One call of `KafkaBroker.subscribe`.

    Attributes:
        callback: is called with each message.
        active: whether it still is.
        reported: whether an exception of it was logged.
    """

    __slots__ = ("active", "callback", "reported")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.active = True
        self.reported = False
