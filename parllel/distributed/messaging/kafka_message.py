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
        incarnation: which taker of the id, numbered by the broker. This and all below are None until
            `publish` writes them, over whatever is there.
        epoch: how often the incarnation had been reset.
        step: the number that `begin_step` was given last since the reset, None before.
        sequence: messages that went from the sender to the recipient before it, in this epoch.
        schema: version of the envelope.
        channel: the name of a channel that is no `Topic`.
    """

    env_id: str
    sender_id: str
    recipient_id: str
    timestamp: float
    message_type: MessageType
    payload: dict[str, Any]
    incarnation: int | None = None
    epoch: int | None = None
    step: int | None = None
    sequence: int | None = None
    schema: int | None = None
    channel: str | None = None
