"""A transport over the topics of a Kafka broker.

    send_hop (any thread)          Window, under `_lock`            receive (one thread at a time)
      number, note  ------------->  sent, not yet back  <----------  arrived, in their order
           |                                 |
           +--> Connection.send              +--> sent again, by a new Connection, when one breaks
                                                  or nothing comes though the broker answers

The thread in `receive` alone replaces connections, because it is the one that waits for them. Everything that
was sent and has not come back is sent again by the new one, so that it makes no difference what the broker
forgot; what comes twice by that is dropped by its number. The lock makes sure that a record is in the window
when a connection is replaced, or goes to the new one: else it would be in neither.
"""

from __future__ import annotations

import operator
import os
import re
import socket
import struct
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from parllel.distributed.messaging.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    MessageTooLargeError,
)
from parllel.distributed.messaging.kafka.client_settings import ClientSettings
from parllel.distributed.messaging.kafka.connection import KafkaConnection
from parllel.distributed.messaging.kafka.frame import SESSION_BYTES
from parllel.distributed.messaging.kafka.run_topics import run_topics, sessions_topic
from parllel.distributed.messaging.kafka.sessions import RunSessions, session_record
from parllel.distributed.messaging.kafka.topic_admin import LOG, TopicAdmin
from parllel.distributed.messaging.kafka.window import ReorderWindow
from parllel.distributed.messaging.transport import Record, Transport
from parllel.errors import ClosedError, WrongStateError

_SLICE_S = 0.05
# Without anything back for so long, records are sent again; for twice as long from then on.
_PATIENCE_S = 2.0
_PROBE_S = 0.5
_FIRST_ATTEMPT_S, _MAX_ATTEMPT_S = 1.5, 4.0
_CLOSE_S = 3.0
_MAX_PARTITIONS = 10_000
_API_VERSIONS, _CORRELATION = 18, 0x70617231
# Servers of other protocols answer at the end of a line, and would wait for one.
_CLIENT = b"parllel\r\n\r\n"
# Of an answer: its length, and the number of the request.
_HEAD_BYTES = 8
_MAX_ANSWER = 1 << 20


class KafkaTransport(Transport):
    """Send the records of a run through topics of its own, one for each kind of message.

    All records of an environment go through one partition, which keeps their order. Topics that were made for
    a run are deleted when the last of its transports is closed.

    Args:
        bootstrap: "host:port" of the broker, several separated by commas.
        run: part of the names of the topics.
        partitions: of each topic; the environments are spread over them.
        assigned: those that this object sends to and reads, for processes that share a run; all by default.
        timeout_s: seconds for what has no deadline of its own: connecting, and closing.
        max_bytes: of one record with its key. A broker may have a limit of its own.
        keep_topics: leave the topics and what is in them, for `parllel messaging tap --from-start`.
        config: settings of librdkafka, such as those of SASL and TLS.

    Raises:
        BrokerUnavailableError: if there is no answer from the broker within `timeout_s`.
        BrokerRefusedError: if it is no broker, lacks something, or does not permit something.
        ValueError: if an argument is out of its range.
    """

    def __init__(
        self,
        bootstrap: str,
        run: str,
        *,
        partitions: int = 1,
        assigned: Sequence[int] | None = None,
        timeout_s: float = 10.0,
        max_bytes: int = 1_000_000,
        keep_topics: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = ClientSettings(bootstrap, timeout_s, max_bytes, config or {})
        self.max_bytes = max_bytes
        self._topics = run_topics(run)
        self._partitions, self._assigned = partitions, _checked_partitions(partitions, assigned)
        self._keep_topics = keep_topics
        self._session = uuid.uuid4().bytes[:SESSION_BYTES]
        self._sessions_topic = sessions_topic(run)
        names = list(self._topics.values())
        self._admin = TopicAdmin(self._settings, names, partitions, self._sessions_topic)
        self._window = ReorderWindow()
        self._lock = threading.Lock()
        self._receiving = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._replaced = self._foreign = 0
        self._waited_s, self._answers, self._said = 0.0, 0, ""
        self._patience_s = self._first_patience()
        self._deadline = time.monotonic() + timeout_s
        self._connection = self._connect(self._deadline)

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Hand the records of a hop to the client, which sends them at once.

        Raises:
            MessageTooLargeError: if one is too large; none is sent then.
            BrokerUnavailableError: if the client takes no more of them by the deadline.
        """
        self._check_usable()
        partitions = [self._partition_of(record) for record in records]
        with self._lock:
            self._window.prune()
            self._deadline = deadline
            connection = self._connection
            for record, partition in zip(records, partitions, strict=True):
                number = self._window.add(record, (record.kind, partition))
                try:
                    # If it is broken, or breaks, the record goes with the next one.
                    self.blocked_s += connection.send(number, record, partition, deadline)
                except BufferError:
                    self._window.drop(number)
                    raise BrokerUnavailableError(
                        f"broker {self._settings.bootstrap}: the client's queue of records is full, with "
                        f"{len(self._window)} that did not come back by the deadline"
                    ) from None

    def receive(self, timeout_s: float) -> list[Record]:
        """Return what has come back, in the order of sending for each environment and kind.

        A connection that broke is replaced, which may take longer: until the deadline of the last hop. What
        does not come back by then is left to the caller to miss, and `trouble` says what is known of it.

        Raises:
            BrokerRefusedError: if the broker does not permit something any more.
            MessageTooLargeError: if the broker's own limit is below `max_bytes`; what it refused is given up.
        """
        end = time.monotonic() + timeout_s
        with self._receiving:
            while True:
                self._check_usable()
                started = time.monotonic()
                arrived = self._connection.poll(max(0.0, min(_SLICE_S, end - started)))
                with self._lock:
                    for number, content in arrived:
                        self._window.arrive(number, content)
                    found = self._window.take()
                if arrived:
                    self._waited_s, self._answers = 0.0, 0
                    self._patience_s = self._first_patience()
                if found:
                    return found
                now = time.monotonic()
                if len(self._window):
                    # Time in here alone: a user who is busy elsewhere says nothing about the broker, and
                    # neither does a process that was stopped.
                    self._waited_s += min(now - started, 2 * _SLICE_S)
                    self._raise_if_refused()
                    self._mend(now, max(end, self._deadline))
                if now >= end:
                    return []

    def reset(self, environment: bytes, lease: int, epoch: int) -> None:
        """Send nothing again that an environment sent before."""
        with self._lock:
            self._window.forget(environment)

    def trouble(self) -> str:
        """Return why records may not have come back, "" if all have."""
        if not len(self._window):
            return ""
        said = self._said or self._connection.said() or "it answers other requests"
        return f"broker {self._settings.bootstrap}: {len(self._window)} records did not come back ({said})"

    def statistics(self) -> dict[str, int]:
        """Return how often it connected anew, and how many records were of others, forged, or came again."""
        return {
            "reconnected": self._replaced,
            "foreign": self._foreign + self._connection.foreign,
            "forged": self._window.forged,
            "repeated": self._window.repeated,
            "in_flight": len(self._window),
        }

    def close(self) -> None:
        """Give up what is not back, end the client, and delete the topics if no other session uses them."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            return  # the clients' threads are in the parent alone
        deadline = time.monotonic() + min(self._settings.timeout_s, _CLOSE_S)
        with self._receiving, self._lock:
            last = self._announce(self._connection, deadline, leaves=True)
            self._connection.close()
        if last is None:
            LOG.warning(
                "broker %s: could not say that this session leaves, so the topics of the run stay",
                self._settings.bootstrap,
            )
            return
        try:
            sessions = RunSessions(self._settings, self._sessions_topic, last, deadline)
        except BrokerUnavailableError as error:
            LOG.warning("the topics of the run were not deleted: %s", error)
            return
        if others := sessions.present():
            LOG.info("topics of the run stay, as %d other sessions use them", len(others))
        self._admin.delete(sessions.unused(), min(self._settings.timeout_s, _CLOSE_S))

    def _announce(
        self, connection: KafkaConnection, deadline: float, *, leaves: bool = False
    ) -> bytes | None:
        """Tell the other sessions whether this one uses the topics; return the record, None if it failed."""
        if not self._admin.has_optional:
            return None
        record = session_record(
            self._session.hex(), leaves=leaves, made=self._admin.made, keeps=self._keep_topics
        )
        return record if connection.announce(self._sessions_topic, record, deadline) else None

    def _connect(self, deadline: float) -> KafkaConnection:
        """Return a connection through which records come back.

        Raises:
            BrokerRefusedError: if what answers is no broker, or the broker lacks something.
            BrokerUnavailableError: if there is none by the deadline.
        """
        began = time.monotonic()
        # A short one first: what answers may be no broker, which another look tells.
        attempt_s = min(_FIRST_ATTEMPT_S, self._settings.timeout_s / 2)
        while True:
            connection = KafkaConnection(
                self._settings, self._topics, self._assigned, self._session
            )
            try:
                end = min(deadline, time.monotonic() + attempt_s)
                connection.open(self._admin, end)
                self._announce(connection, end)
                return connection
            except BrokerUnavailableError as error:
                connection.poll(0)
                refused = connection.refused
                said = "; ".join(filter(None, (_without_name(error), connection.said())))
                connection.close()
            except BaseException:
                connection.close()
                raise
            if refused:
                raise BrokerRefusedError(f"broker {self._settings.bootstrap}: {refused}")
            if attempt_s <= _FIRST_ATTEMPT_S and (wrong := _wrong_answer(self._settings, _PROBE_S)):
                raise BrokerRefusedError(wrong)
            if self._closed or time.monotonic() + _SLICE_S >= deadline:
                raise BrokerUnavailableError(
                    f"broker {self._settings.bootstrap}: no answer of a broker within "
                    f"{time.monotonic() - began:.1f} s ({said}); start it, or raise timeout_s"
                )
            time.sleep(_SLICE_S)
            # One that breaks half-way, as with a broker that starts, is not waited for to the end.
            attempt_s = min(max(2 * attempt_s, 2 * _FIRST_ATTEMPT_S), _MAX_ATTEMPT_S)

    def _mend(self, now: float, deadline: float) -> None:
        """Replace the connection if another may bring what this one does not.

        `blocked_s` counts what that may take at most: the process may be stopped here, too.
        """
        replace = self._should_replace(now)
        asked = time.monotonic()
        self.blocked_s += min(asked - now, _PROBE_S)
        if replace:
            self._replace(deadline)
            self.blocked_s += min(time.monotonic() - asked, max(0.0, deadline - asked) + _PROBE_S)

    def _should_replace(self, now: float) -> bool:
        """Return whether another connection may bring what this one does not."""
        if self._connection.broken:
            return True
        if self._waited_s < self._patience_s:
            return False
        probe_s = min(max(self._deadline - now, _SLICE_S), _PROBE_S)
        # Twice, with a poll between: what a broker that was stopped held back may be on its way.
        self._answers = self._answers + 1 if self._connection.answers(probe_s) else 0
        self._said = self._connection.said()
        return self._answers > 1

    def _replace(self, deadline: float) -> None:
        """Send what is not back through a new connection."""
        old = self._connection
        with self._lock:
            old.broken = old.broken or "nothing came back"
        LOG.warning(
            "broker %s: new connection for %d records (%s)",
            *(self._settings.bootstrap, len(self._window), old.said()),
        )
        old.close()
        try:
            new = self._connect(deadline)
        except BrokerUnavailableError as error:
            self._said = str(error)
            return  # the next call tries again
        with self._lock:
            self._window.prune()
            # A failure here marks the new one as broken, and the next round replaces it.
            for number, record in self._window.missing():
                new.send(number, record, self._partition_of(record), deadline)
            self._foreign += old.foreign
            self._connection = new
        self._replaced += 1
        self._waited_s, self._answers, self._said = 0.0, 0, ""
        self._patience_s = min(2 * self._patience_s, 2 * self._first_patience())

    def _raise_if_refused(self) -> None:
        connection = self._connection
        if connection.too_large:
            with self._lock:
                gone = [self._window.drop(number) for number in connection.too_large]
            connection.too_large.clear()
            sizes = sorted(len(record.content) for record in gone if record is not None)
            raise MessageTooLargeError(
                f"broker {self._settings.bootstrap}: records of up to {sizes[-1] if sizes else 0} bytes are "
                f"above its own limit; raise that (message.max.bytes), or give fewer as max_bytes, now "
                f"{self.max_bytes}"
            )
        if connection.refused:
            raise BrokerRefusedError(f"broker {self._settings.bootstrap}: {connection.refused}")

    def _partition_of(self, record: Record) -> int:
        if len(record.content) > self.max_bytes:
            raise MessageTooLargeError(
                f"record of {record.environment!r} ({record.kind}): {len(record.content)} bytes, of "
                f"{self.max_bytes} allowed (max_bytes)"
            )
        found = crc32(record.environment) % self._partitions
        if found not in self._assigned:
            raise ValueError(
                f"environment {record.environment!r} belongs to partition {found}, and this process has "
                f"{self._assigned} (assigned)"
            )
        return found

    def _first_patience(self) -> float:
        return min(_PATIENCE_S, self._settings.timeout_s / 4)

    def _check_usable(self) -> None:
        if self._closed:
            raise ClosedError("KafkaTransport: it is closed")
        if os.getpid() != self._process:
            raise WrongStateError(
                "KafkaTransport: it was made before this process was forked; make one in each process"
            )


def _without_name(error: BrokerUnavailableError) -> str:
    """Return what an error says, without the broker's name, which stands before it already."""
    return re.sub(r"^broker \S+: ", "", str(error))


def _checked_partitions(partitions: int, assigned: Sequence[int] | None) -> tuple[int, ...]:
    """Return the partitions that are used.

    Raises:
        ValueError: if there is none, or one is not there.
        TypeError: if one is no int.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int):
        raise TypeError(f"partitions: expected an int, got {partitions!r}")
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise ValueError(f"partitions: expected 1 to {_MAX_PARTITIONS}, got {partitions}")
    if assigned is None:
        return tuple(range(partitions))
    found = tuple(sorted({operator.index(one) for one in assigned}))
    if not found or not 0 <= found[0] <= found[-1] < partitions:
        raise ValueError(
            f"assigned: expected partitions from 0 to {partitions - 1}, got {list(assigned)}"
        )
    return found


# The client tries again until its deadline, whatever comes; an answer of something else than a broker says at
# once that waiting is of no use.
def _wrong_answer(settings: ClientSettings, timeout_s: float) -> str | None:
    """Return what answers in place of a broker, None if a broker answers, or nothing does.

    Only plain connections are tried: others begin with a handshake.
    """
    protocol = str(settings.config.get("security.protocol", "plaintext")).lower()
    if protocol != "plaintext":
        return None
    for address in settings.addresses():
        answer = _ask(address, timeout_s)
        if len(answer) >= _HEAD_BYTES and not _is_broker(answer):
            return f"{address[0]}:{address[1]} is no Kafka broker: it answers {answer[:16]!r}"
    return None


def _ask(address: tuple[str, int], timeout_s: float) -> bytes:
    """Return the first bytes of the answer to a request that begins a connection, as far as they come."""
    head = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, len(_CLIENT)) + _CLIENT
    answer = b""
    try:
        with socket.create_connection(address, timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(head)) + head)
            while len(answer) < _HEAD_BYTES and (more := connection.recv(64)):
                answer += more
    except OSError:  # a time-out too
        pass
    return answer


def _is_broker(answer: bytes) -> bool:
    length, correlation = struct.unpack_from(">ii", answer)
    return 4 <= length <= _MAX_ANSWER and bool(correlation == _CORRELATION)
