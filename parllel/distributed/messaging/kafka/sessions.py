"""The sessions that use a run's topics. The last one to leave deletes the topics.

    each session        --- joins, later leaves ------------------>  the sessions topic  (partition 0)
    a leaving session   <--- all records up to its own last one ---  the sessions topic

Deleting a topic breaks the clients of all its readers, so a session deletes only what nobody uses any more. A
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
from parllel.distributed.messaging.kafka.topic_admin import metadata, new_client
from parllel.distributed.messaging.process_identity import is_gone, this_process

_SLICE_S = 0.05
_MAX_RECORDS = 1000  # fetched from the client at once


def session_record(session: str, *, leaves: bool, made: Iterable[str], keeps: bool) -> bytes:
    """Encode a session's announcement.

    Args:
        session: its unique name.
        leaves: True once it no longer uses the topics.
        made: names of the topics that the broker created for it.
        keeps: True to keep the topics when all sessions have left.
    """
    record = {"session": session, "leaves": leaves, "made": sorted(made), "keeps": keeps}
    return json.dumps({**record, "process": this_process()}).encode()


class RunSessions:
    """The last announcement of each session of a run, up to a given record.

    Args:
        topic: the sessions topic.
        until: the last record to read. It must have been sent already.

    Raises:
        BrokerUnavailableError: if that record is not read by the deadline.
    """

    def __init__(self, settings: ClientSettings, topic: str, until: bytes, deadline: float) -> None:
        self._records: dict[str, dict[str, Any]] = {}
        consumer: Consumer = new_client(Consumer, settings.for_consumer())
        try:
            # Otherwise the client would look up the topic only at its next tick, in half a second.
            metadata(consumer, settings, deadline, topic)
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while not self._read(consumer, until):
                if time.monotonic() > deadline:
                    raise BrokerUnavailableError(
                        f"broker {settings.bootstrap}: topic {topic!r} was not read in time"
                    )
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, until: bytes) -> bool:
        found = False
        for message in consumer.consume(_MAX_RECORDS, _SLICE_S):
            content = message.value()
            if message.error() is None and content is not None:
                found |= content == until
                # Anyone with access to the topic may have written anything.
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    record = json.loads(content)
                    self._records[str(record["session"])] = {
                        "leaves": bool(record["leaves"]),
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

    def unused(self) -> set[str]:
        """Return the topics created for sessions of the run that no session uses any more."""
        records = self._records.values()
        if self.present() or any(record["keeps"] for record in records):
            return set()
        return set().union(*(record["made"] for record in records))
