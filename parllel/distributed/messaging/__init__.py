"""Agents that exchange messages over a broker, with every environment isolated from the others.

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

from parllel.distributed.messaging.agent import Agent, ExecutionMode
from parllel.distributed.messaging.coordination import (
    PriceCoordinator,
    broadcast,
    set_points,
    split,
)
from parllel.distributed.messaging.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    DuplicateActionError,
    HostError,
    MessageTooLargeError,
    MessagingError,
    MissingMessageError,
    QueueOverflowError,
    SequenceGapError,
)
from parllel.distributed.messaging.hosts.agent_host import AgentHost
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_message import KafkaMessage, MessageType
from parllel.distributed.messaging.kafka_multi_agent_env import KafkaMultiAgentEnv
from parllel.distributed.messaging.memory_transport import MemoryTransport
from parllel.distributed.messaging.topic import Topic, TopicManager
from parllel.distributed.messaging.transport import Record, Transport
from parllel.distributed.messaging.vectorized_kafka_env import VectorizedKafkaEnv

__all__ = [
    "Agent",
    "AgentHost",
    "BrokerRefusedError",
    "BrokerUnavailableError",
    "DuplicateActionError",
    "ExecutionMode",
    "HostError",
    "KafkaBroker",
    "KafkaMessage",
    "KafkaMultiAgentEnv",
    "MemoryTransport",
    "MessageTooLargeError",
    "MessageType",
    "MessagingError",
    "MissingMessageError",
    "PriceCoordinator",
    "QueueOverflowError",
    "Record",
    "SequenceGapError",
    "Topic",
    "TopicManager",
    "Transport",
    "VectorizedKafkaEnv",
    "broadcast",
    "set_points",
    "split",
]
