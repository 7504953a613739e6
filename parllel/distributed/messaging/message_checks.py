"""Whether a broker, a message and its topic are given as they have to be."""

from __future__ import annotations

import re

from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.message_type import MessageType
from parllel.distributed.messaging.topic import Topic, check_id

_RUN = re.compile(r"[A-Za-z0-9._-]{1,200}")


def check_settings(run: object, capacity: object, timeout_s: object) -> None:
    """Check what `KafkaBroker` was given.

    Raises:
        ValueError: names what is wrong.
    """
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise ValueError(
            f"KafkaBroker: run: expected 1 to 200 letters, digits and '._-', got {run!r}"
        )
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ValueError(f"KafkaBroker: capacity: expected an int of at least 1, got {capacity!r}")
    if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise ValueError(f"KafkaBroker: timeout_s: expected seconds above 0, got {timeout_s!r}")


def check_message(topic: str, message: KafkaMessage) -> None:
    """Check what `KafkaBroker.publish` was given.

    Raises:
        TypeError: if a part of it has the wrong type.
        ValueError: if an id is empty, or the message is not of the topic.
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
        check_channel("publish", topic)
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
                f"publish: {name}: expected {one!r}, as in the topic {topic!r}, got {other!r}"
            )


def check_channel(call: str, topic: object) -> None:
    """Check the name of a channel; raise as `check_message`."""
    if not isinstance(topic, str) or not topic:
        raise TypeError(f"{call}: topic: expected a Topic, or the name of a channel, got {topic!r}")
