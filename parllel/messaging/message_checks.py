"""Whether a message is one, and belongs to its topic."""

from __future__ import annotations

from parllel.messaging.kafka_message import KafkaMessage
from parllel.messaging.message_type import MessageType
from parllel.messaging.topic import Topic, check_id


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
