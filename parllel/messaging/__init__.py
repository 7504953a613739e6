"""Agents that talk over a broker, isolated by environment."""

from parllel.messaging.delayed_transport import DelayedTransport
from parllel.messaging.edge import Edge
from parllel.messaging.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    DuplicateActionError,
    MessageTooLargeError,
    MessagingError,
    MissingMessageError,
    QueueOverflowError,
    SequenceGapError,
)
from parllel.messaging.execution_mode import ExecutionMode
from parllel.messaging.kafka_broker import KafkaBroker
from parllel.messaging.kafka_message import KafkaMessage
from parllel.messaging.memory_transport import MemoryLog, MemoryTransport
from parllel.messaging.message_tap import MessageTap
from parllel.messaging.message_type import MessageType
from parllel.messaging.record_content import read_record
from parllel.messaging.topic import Address, Topic
from parllel.messaging.topic_manager import TopicManager
from parllel.messaging.transport import Record, Transport

__all__ = [
    "Address",
    "BrokerRefusedError",
    "BrokerUnavailableError",
    "DelayedTransport",
    "DuplicateActionError",
    "Edge",
    "ExecutionMode",
    "KafkaBroker",
    "KafkaMessage",
    "MemoryLog",
    "MemoryTransport",
    "MessageTap",
    "MessageTooLargeError",
    "MessageType",
    "MessagingError",
    "MissingMessageError",
    "QueueOverflowError",
    "Record",
    "SequenceGapError",
    "Topic",
    "TopicManager",
    "Transport",
    "read_record",
]
