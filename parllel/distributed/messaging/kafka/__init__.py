"""The transport over a Kafka broker.

Raises:
    ImportError: if confluent-kafka is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import confluent_kafka as _confluent_kafka  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "confluent_kafka":
        raise
    raise ImportError(
        f"parllel.distributed.messaging.kafka needs confluent-kafka: {_install_command('kafka')}",
        name="confluent_kafka",
    ) from error

from parllel.distributed.messaging.kafka.kafka_transport import KafkaTransport

__all__ = [
    "KafkaTransport",
]
