"""One message, and what messages are for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class MessageType(str, Enum):
    """What a message is for."""

    ACTION = "action"
    INFO = "info"
    BROADCAST = "broadcast"


@dataclass
class KafkaMessage:
    """What one agent tells another of the same environment.

    Attributes:
        env_id: the environment, any text.
        sender_id: the agent that sends, or "environment".
        recipient_id: the agent that receives, or "environment".
        timestamp: in the units of the environment's clock.
        message_type: what it is for.
        payload: by name, whatever `parllel.distributed.wire.encode` takes.
        lease: number of the environment's lease of its id, given by the broker. This and all fields below
            are None until `publish` sets them.
        epoch: how often the lease had been reset.
        step: the number that `begin_step` was given last since the reset, None before.
        sequence: messages that went from the sender to the recipient before it, in this epoch.
        schema: version of the envelope.
        custom_topic: name of the topic if it was given as plain text rather than as a `Topic`.
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
