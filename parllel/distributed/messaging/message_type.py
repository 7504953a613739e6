"""What messages are for."""

from __future__ import annotations

from enum import Enum


class MessageType(str, Enum):
    """What a message is for."""

    ACTION = "action"
    INFO = "info"
    BROADCAST = "broadcast"
