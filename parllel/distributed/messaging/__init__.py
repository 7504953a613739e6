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
    raise ImportError(
        f"parllel.distributed.messaging needs msgspec: {_install_command('wire')}"
    ) from error

from parllel.distributed.messaging.agent import Agent
from parllel.distributed.messaging.delayed_transport import DelayedTransport
from parllel.distributed.messaging.edge import Edge
from parllel.distributed.messaging.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    DuplicateActionError,
    MessageTooLargeError,
    MessagingError,
    MissingMessageError,
    QueueOverflowError,
    SequenceGapError,
)
from parllel.distributed.messaging.execution_mode import ExecutionMode
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.kafka_multi_agent_env import KafkaMultiAgentEnv, StepResult
from parllel.distributed.messaging.memory_transport import MemoryLog, MemoryTransport
from parllel.distributed.messaging.message_tap import MessageTap
from parllel.distributed.messaging.message_type import MessageType
from parllel.distributed.messaging.parallel_face import ParallelFace
from parllel.distributed.messaging.record_content import read_record
from parllel.distributed.messaging.topic import Address, Topic
from parllel.distributed.messaging.topic_manager import TopicManager
from parllel.distributed.messaging.transport import Record, Transport
from parllel.distributed.messaging.vector_face import VectorFace
from parllel.distributed.messaging.vectorized_kafka_env import VectorizedKafkaEnv

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
