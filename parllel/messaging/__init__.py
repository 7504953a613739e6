"""Agents that talk over a broker, isolated by environment.

Raises:
    ImportError: if msgspec is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import msgspec as _msgspec  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "msgspec":
        raise
    raise ImportError(f"parllel.messaging needs msgspec: {_install_command('wire')}") from error

from parllel.messaging.agent import Agent
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
from parllel.messaging.kafka_multi_agent_env import KafkaMultiAgentEnv, StepResult
from parllel.messaging.memory_transport import MemoryLog, MemoryTransport
from parllel.messaging.message_tap import MessageTap
from parllel.messaging.message_type import MessageType
from parllel.messaging.parallel_face import ParallelFace
from parllel.messaging.record_content import read_record
from parllel.messaging.topic import Address, Topic
from parllel.messaging.topic_manager import TopicManager
from parllel.messaging.transport import Record, Transport
from parllel.messaging.vector_face import VectorFace
from parllel.messaging.vectorized_kafka_env import VectorizedKafkaEnv

__all__ = [
    "Address",
    "Agent",
    "BrokerRefusedError",
    "BrokerUnavailableError",
    "DelayedTransport",
    "DuplicateActionError",
    "Edge",
    "ExecutionMode",
    "KafkaBroker",
    "KafkaMessage",
    "KafkaMultiAgentEnv",
    "MemoryLog",
    "MemoryTransport",
    "MessageTap",
    "MessageTooLargeError",
    "MessageType",
    "MessagingError",
    "MissingMessageError",
    "ParallelFace",
    "QueueOverflowError",
    "Record",
    "SequenceGapError",
    "StepResult",
    "Topic",
    "TopicManager",
    "Transport",
    "VectorFace",
    "VectorizedKafkaEnv",
    "read_record",
]
