"""Who uses the topics of a run, so that the last one deletes them.

    each session   --- "I use the topics", then "I leave" --->  the topic of sessions  (partition 0)
    who leaves     <--- everything, up to its own last record -- the topic of sessions

Deleting a topic ends the clients of all who read it, so one that leaves deletes only what nobody uses any
more. A session that was killed says nothing; on this machine it is known by its process, which is gone. One
that was killed elsewhere keeps the topics: what is in them goes after a day, as topic_admin.py says.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from parllel.distributed.messaging.errors import BrokerUnavailableError
from parllel.distributed.messaging.kafka.client_settings import ClientSettings
from parllel.distributed.messaging.kafka.topic_admin import metadata, new_client

_SLICE_S = 0.05
_MOST = 1000  # records that are consumed at once


def session_record(session: str, *, leaves: bool, made: Iterable[str], keeps: bool) -> bytes:
    """Return what a session says of itself.

    Args:
        session: its name, which no other has.
        leaves: whether it uses the topics no more.
        made: names of the topics that the broker made for it.
        keeps: whether the topics are to stay when all have left.
    """
    said = {"session": session, "leaves": leaves, "made": sorted(made), "keeps": keeps}
    return json.dumps({**said, "process": _this_process()}).encode()


class RunSessions:
    """What the sessions of a run have said up to one record.

    Args:
        topic: where they say it.
        until: the last record to be read, which was sent already.

    Raises:
        BrokerUnavailableError: if it is not read by the deadline.
    """

    def __init__(self, settings: ClientSettings, topic: str, until: bytes, deadline: float) -> None:
        self._said: dict[str, dict[str, Any]] = {}
        consumer: Consumer = new_client(Consumer, settings.for_consumer())
        try:
            # Without it, the client would ask for the topic at its next tick, in half a second.
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
        for message in consumer.consume(_MOST, _SLICE_S):
            content = message.value()
            if message.error() is None and content is not None:
                found |= content == until
                # Whoever may write to a topic may write anything.
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    said = json.loads(content)
                    self._said[str(said["session"])] = {
                        "leaves": bool(said["leaves"]),
                        "keeps": bool(said["keeps"]),
                        "made": {str(name) for name in said["made"]},
                        "process": said["process"],
                    }
        return found

    def present(self) -> list[str]:
        """Return the names of those that have not left, and may be alive."""
        return [
            session
            for session, said in self._said.items()
            if not said["leaves"] and not _is_gone(said["process"])
        ]

    def unused(self) -> set[str]:
        """Return the topics that nobody uses any more, of those that the broker made for any of them."""
        said = self._said.values()
        if self.present() or any(one["keeps"] for one in said):
            return set()
        return set().union(*(one["made"] for one in said))


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": pid,
        "started": _started(pid),
    }


def _is_gone(process: Any) -> bool:
    """Return whether a process was on this machine and is not any more; False if that cannot be told."""
    if not isinstance(process, dict) or _machine() is None or process.get("machine") != _machine():
        return False
    return _started(process.get("pid")) != process.get("started")


def _machine() -> str | None:
    """Return what process numbers belong to: this boot and this namespace; None where they have no names."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(pid: Any) -> int | None:
    """Return when a process started, in clock ticks since the boot; None if there is none."""
    try:
        with open(f"/proc/{int(pid)}/stat", "rb") as file:
            # The name of the program is in parentheses, and may hold anything.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, TypeError, IndexError):
        return None
