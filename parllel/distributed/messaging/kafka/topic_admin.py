"""Finding, creating and deleting the topics of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    NewTopic,
    TopicMetadata,
)

from parllel.distributed.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from parllel.distributed.messaging.kafka.client_settings import ClientSettings

LOG = logging.getLogger("parllel.distributed.messaging.kafka")
# The clients' messages go to the user's handlers. Without a NullHandler, Python would print them.
LOG.addHandler(logging.NullHandler())
# The topics of a killed run remain; their records expire after a day.
_KEPT_MS = 24 * 3600 * 1000
_PAUSE_S = 0.05
_APPEARING_S = 1.0
# Errors of a creation request after which the topic may exist nevertheless.
_NOT_REFUSED = (
    *(KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT),
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION),
    *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.THROTTLING_QUOTA_EXCEEDED),
)
# Until a leader is elected, moments after the topic was created, metadata show this one.
_NO_LEADER = -1


class TopicAdmin:
    """Administers the topics of one run.

    Args:
        settings: settings of the broker's clients.
        topics: names of the topics.
        partitions: minimum number of partitions of each topic.
        optional: name of a topic that the run can do without.

    Attributes:
        made: topics that the broker created on this object's request.
        has_optional: True if the optional topic can be used.
    """

    def __init__(
        self, settings: ClientSettings, topics: Sequence[str], partitions: int, optional: str
    ) -> None:
        self.made: set[str] = set()
        self.has_optional = False
        self._optional = optional
        self._settings = settings
        self._topics = list(topics)
        self._partitions = partitions

    def ensure(self, consumer: Consumer, producer: Producer, deadline: float) -> None:
        """Create missing topics, and return once all are usable.

        Args:
            consumer: looks topics up without creating them.
            producer: looks topics up, which creates them on brokers with automatic creation.

        Raises:
            BrokerRefusedError: if a topic cannot be created or has too few partitions.
            BrokerUnavailableError: if the broker does not answer.
        """
        missing = [name for name in self._topics if self._seen(consumer, name, deadline) is None]
        wanted = missing if self._has_optional(consumer, deadline) else [*missing, self._optional]
        reasons = self._make(wanted, consumer, deadline) if wanted else {}
        self.has_optional = self._optional not in reasons
        refused = next((reasons[name] for name in self._topics if name in reasons), "")
        # Brokers with automatic creation may create a topic on lookup although they refused the request.
        end = min(deadline, time.monotonic() + _APPEARING_S) if refused else deadline
        for name in self._topics:
            client = producer if name in missing and name not in self.made else consumer
            while (found := self._seen(client, name, deadline)) is None or _leaderless(found):
                if time.monotonic() > end:
                    self._raise_missing(name, refused)
                time.sleep(_PAUSE_S)
            if len(found.partitions) < self._partitions:
                raise BrokerRefusedError(
                    f"broker {self._settings.bootstrap}: topic {name!r}: expected at least "
                    f"{self._partitions} partitions, got {len(found.partitions)}; lower "
                    "`partitions`"
                )

    def _has_optional(self, consumer: Consumer, deadline: float) -> bool:
        try:
            return self._seen(consumer, self._optional, deadline) is not None
        except BrokerRefusedError:
            return False

    def _raise_missing(self, name: str, refused: str) -> NoReturn:
        if refused:
            raise BrokerRefusedError(
                f"broker {self._settings.bootstrap}: topic {name!r} does not exist and cannot be "
                f"created ({refused}); ask the broker's administrator to create it, and name the "
                "run accordingly"
            )
        raise BrokerUnavailableError(
            f"broker {self._settings.bootstrap}: topic {name!r} was not usable by the deadline"
        )

    def delete(self, names: Iterable[str], timeout_s: float) -> None:
        """Delete topics of the run. Failures are logged."""
        known = {*self._topics, self._optional}
        chosen = [name for name in sorted(names) if name in known]
        if not chosen:
            return
        try:
            admin = AdminClient(self._settings.for_client(), logger=LOG)
            options = {"operation_timeout": timeout_s, "request_timeout": timeout_s}
            for name, done in admin.delete_topics(chosen, **options).items():
                try:
                    done.result(timeout_s + 1)
                except Exception as error:
                    # Another session that left at the same time may have deleted it.
                    if not _is_gone(error):
                        LOG.warning("topic %s was not deleted: %s", name, described(error))
        except KafkaException as error:
            LOG.warning("the topics of the run were not deleted: %s", described(error))

    def _seen(
        self, client: Consumer | Producer, name: str, deadline: float
    ) -> TopicMetadata | None:
        found = metadata(client, self._settings, deadline, name).topics.get(name)
        if found is None:
            return None
        if found.error is not None and "AUTHORIZATION" in found.error.name():
            raise BrokerRefusedError(
                f"broker {self._settings.bootstrap}: topic {name!r}: {found.error.str()}"
            )
        return None if found.error is not None or not found.partitions else found

    def _make(self, names: list[str], consumer: Consumer, deadline: float) -> dict[str, str]:
        """Request the creation of topics. Returns the reasons for those refused, by name."""
        cluster = metadata(consumer, self._settings, deadline, names[0])
        # Without a controller the request would time out. Such a broker may create topics on lookup.
        if cluster.controller_id not in cluster.brokers:
            return {}
        config = {"retention.ms": str(_KEPT_MS)}
        if self._settings.max_bytes > 1_000_000:
            config["max.message.bytes"] = str(self._settings.for_producer()["message.max.bytes"])
        wanted = [NewTopic(name, num_partitions=self._partitions, config=config) for name in names]
        for topic in wanted:
            # The sessions topic holds few records, and a session may be open for longer than a day.
            if topic.topic == self._optional:
                topic.config = {**config, "retention.ms": "-1"}
        left = max(deadline - time.monotonic(), 0.1)
        admin = AdminClient(self._settings.for_client(), logger=LOG)
        options = {"operation_timeout": left, "request_timeout": left}
        refused: dict[str, str] = {}
        for name, done in admin.create_topics(wanted, **options).items():
            try:
                done.result(left + 1)
                self.made.add(name)
            except (KafkaException, TimeoutError) as error:
                first = error.args[0] if error.args else None
                # Negative codes are the client's own errors: the broker may not have answered at all.
                if (
                    isinstance(first, KafkaError)
                    and first.code() > 0
                    and first.code() not in _NOT_REFUSED
                ):
                    refused[name] = first.str()
        return refused


def new_client(
    kind: Callable[..., Any],
    settings: Mapping[str, Any],
    error_cb: Callable[[KafkaError], None] | None = None,
) -> Any:
    """Create a client of librdkafka.

    Raises:
        ValueError: for an unknown setting or an invalid value.
    """
    given = {} if error_cb is None else {"error_cb": error_cb}
    try:
        return kind(dict(settings), logger=LOG, **given)
    except KafkaException as error:
        raise ValueError(f"config: {described(error)}") from None


def metadata(
    client: Consumer | Producer | AdminClient,
    settings: ClientSettings,
    deadline: float,
    topic: str | None = None,
) -> ClusterMetadata:
    """Request a broker's metadata, for one topic or all.

    Raises:
        BrokerUnavailableError: if it does not answer by the deadline.
    """
    left = max(deadline - time.monotonic(), 0.05)
    try:
        return (
            client.list_topics(topic, timeout=left) if topic else client.list_topics(timeout=left)
        )
    except KafkaException as error:
        raise BrokerUnavailableError(f"broker {settings.bootstrap}: {described(error)}") from None


def described(error: BaseException) -> str:
    """Return the message of a client's exception, without its codes."""
    first = error.args[0] if error.args else error
    message = first.str() if hasattr(first, "str") else str(first)
    return message or type(error).__name__


def _is_gone(error: BaseException) -> bool:
    first = error.args[0] if error.args else None
    return isinstance(first, KafkaError) and first.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _leaderless(topic: TopicMetadata) -> bool:
    return any(partition.leader == _NO_LEADER for partition in topic.partitions.values())
