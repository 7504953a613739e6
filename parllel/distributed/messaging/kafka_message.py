"""One message, and the kinds of messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class MessageType(str, Enum):
    """The purpose of a message."""

    ACTION = "action"
    INFO = "info"
    BROADCAST = "broadcast"


@dataclass
class KafkaMessage:
    """A message from one agent to another of the same environment.

    Attributes:
        env_id: the environment, any non-empty string.
        sender_id: the sending agent, or "environment".
        recipient_id: the receiving agent, or "environment".
        timestamp: time in the units of the environment's clock.
        message_type: the purpose of the message.
        payload: values keyed by name, of any type that `parllel.distributed.wire.encode` accepts.
        lease: number of the environment's lease of its id, assigned by the broker. This and all fields
            below are None until `publish` sets them.
        epoch: number of resets of the lease before the message.
        step: the number last passed to `begin_step` since the reset, None before that.
        sequence: number of earlier messages from this sender to this recipient in the epoch.
        schema: version of the envelope.
        custom_topic: name of the topic if it was given as a plain str. None if it was a `Topic`.
    """

    env_id: str
    sender_id: str
    recipient_id: str
    timestamp: float
    message_type: MessageType
    payload: dict[str, Any]
    lease: int | None = None
    epoch: int | None = None
    step: int | None = None
    sequence: int | None = None
    schema: int | None = None
    custom_topic: str | None = None
