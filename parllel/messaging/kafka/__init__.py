"""The transport over a Kafka broker.

Raises:
    ImportError: if confluent-kafka is not installed.
"""

try:
    import confluent_kafka as _confluent_kafka  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "confluent_kafka":
        raise
    raise ImportError(
        "parllel.messaging.kafka needs confluent-kafka: pip install 'parllel[kafka]'",
        name="confluent_kafka",
    ) from error

from parllel.messaging.kafka.kafka_transport import KafkaTransport

__all__ = ["KafkaTransport"]
