"""The sessions that use a run's topics. The last one to leave deletes the topics.

    each session        --- joins, leaves, has closed ------------>  the sessions topic  (partition 0)
    a leaving session   <--- all records up to its own ------------  the sessions topic
    the last to leave   <--- until all others have closed ---------  the sessions topic

Deleting a topic crashes the clients that read it, so a session deletes only what nobody reads any more: a
session leaves once it no longer reads messages, and has closed once it no longer reads this topic either. A
killed session does not announce that it leaves; on this machine it is recognized by its process, which no
longer exists. One killed on another machine keeps the topics alive; their records expire after a day (see
topic_admin.py).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from parllel.distributed.messaging.errors import BrokerUnavailableError
from parllel.distributed.messaging.kafka.client_settings import ClientSettings
from parllel.distributed.messaging.kafka.frame import signed_value
from parllel.distributed.messaging.kafka.topic_admin import metadata, new_client
from parllel.distributed.messaging.process_identity import is_gone, this_process
from parllel.types import Closeable

_SLICE_S = 0.05
_MAX_RECORDS = 1000  # fetched from the client at once


def session_record(
    session: str, *, leaves: bool, closed: bool, made: Iterable[str], keeps: bool
) -> bytes:
    """Encode a session's announcement.

    Args:
        session: its unique name.
        leaves: True once it no longer uses the topics of messages.
        closed: True once it reads no topic.
        made: names of the topics that the broker created for it.
        keeps: True to keep the topics when all sessions have left.
    """
    record = {"session": session, "leaves": leaves, "closed": closed, "keeps": keeps}
    return json.dumps({**record, "made": sorted(made), "process": this_process()}).encode()


class RunSessions(Closeable):
    """The last announcement of each session of a run, as read so far.

    Args:
        topic: the sessions topic.
        key: with which records are signed; None if they are not.

    Raises:
        BrokerUnavailableError: if the broker does not answer by the deadline.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        deadline: float,
        key: bytes | None = None,
    ) -> None:
        self._settings, self._topic, self._deadline, self._key = settings, topic, deadline, key
        self._records: dict[str, dict[str, Any]] = {}
        self._last_to_leave = ""
        self._consumer: Consumer = new_client(Consumer, settings.for_consumer())
        try:
            # Otherwise the client would look up the topic only at its next tick, in half a second.
            metadata(self._consumer, settings, deadline, topic)
            self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        except BaseException:
            self.close()
            raise

    def read_until(self, record: bytes) -> None:
        """Read up to a record that has been sent. Raises BrokerUnavailableError at the deadline."""
        while not self._read(record):
            if time.monotonic() > self._deadline:
                raise BrokerUnavailableError(
                    f"broker {self._settings.bootstrap}: topic {self._topic!r} was not read in time"
                )

    def await_closed(self, session: str) -> bool:
        """Read until all sessions but this one have closed. Returns False at the deadline."""
        while any(
            name != session and not record["closed"] and not is_gone(record["process"])
            for name, record in self._records.items()
        ):
            if time.monotonic() > self._deadline:
                return False
            self._read(b"")
        return True

    def _read(self, until: bytes) -> bool:
        found = False
        for message in self._consumer.consume(_MAX_RECORDS, _SLICE_S):
            content = message.value()
            if self._key is not None:
                content = signed_value(content, self._topic, self._key)
            if message.error() is None and content is not None:
                found |= content == until
                # Anyone with access to the topic may have written anything.
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    record = json.loads(content)
                    if record["leaves"] and not record["closed"]:
                        self._last_to_leave = record["session"]
                    self._records[str(record["session"])] = {
                        "leaves": bool(record["leaves"]),
                        "closed": bool(record["closed"]),
                        "keeps": bool(record["keeps"]),
                        "made": {str(name) for name in record["made"]},
                        "process": record["process"],
                    }
        return found

    def present(self) -> list[str]:
        """Return the names of sessions that have not left and may still be running."""
        return [
            session
            for session, record in self._records.items()
            if not record["leaves"] and not is_gone(record["process"])
        ]

    def unused(self, session: str) -> set[str]:
        """Return the topics that a session has to delete: all that were made, if it is the last to leave."""
        records = self._records.values()
        # Of sessions that leave together, each one reads at least up to its own record. Only the last of them
        # in the log finds that all had left before.
        if self.present() or self._last_to_leave != session:
            return set()
        if any(record["keeps"] for record in records):
            return set()
        return set().union(*(record["made"] for record in records))

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
