"""A transport over the topics of a Kafka broker.

    send_hop (any thread)          ReorderWindow, under `_lock`     receive (one thread at a time)
      number, register  --------->  sent, not yet back  <----------  arrived, put in order
           |                                 |
           +--> KafkaConnection.send         +--> sent again, by a new connection, when one breaks
                                                  or nothing arrives although the broker answers

Only the thread in `receive` replaces connections, because it is the one that waits. The new connection sends
everything again that is not back, so it does not matter what the broker lost; duplicates are recognized by
their numbers. The lock ensures that a record is either in the window when a connection is replaced, or sent
by the new one.
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
from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
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
from parllel.distributed.messaging.kafka.run_topics import hosts_topic, run_topics, sessions_topic
from parllel.distributed.messaging.kafka.sessions import RunSessions, session_record
from parllel.distributed.messaging.kafka.topic_admin import LOG, TopicAdmin
from parllel.distributed.messaging.kafka.window import ReorderWindow
from parllel.distributed.messaging.transport import HOSTS, OtherRecord, Record, Transport
from parllel.distributed.web.token_file import check_token
from parllel.errors import ClosedError, WrongStateError

# Longest poll, after which a broken connection or a closed transport is noticed.
_SLICE_S = 0.05
# Records are sent again when nothing has come back for so long, and next time after twice as long.
_PATIENCE_S = 2.0
_PROBE_S = 0.5
_FIRST_ATTEMPT_S, _MAX_ATTEMPT_S = 1.5, 4.0
_CLOSE_S = 3.0
_MAX_PARTITIONS = 10_000
_API_VERSIONS, _CORRELATION = 18, 0x70617231
# Servers of text protocols answer at the end of a line, so the probe contains one.
_CLIENT = b"parllel\r\n\r\n"
# An answer begins with its length and the number of the request.
_HEAD_BYTES = 8
_MAX_ANSWER = 1 << 20


class KafkaTransport(Transport):
    """Sends the records of a run through its own Kafka topics, one for each kind of message.

    All records of an environment go through one partition, which keeps their order. Topics that were created
    for a run are deleted when its last transport is closed.

    Args:
        bootstrap: "host:port" of the broker. Several addresses are separated by commas.
        run: name of the run, which becomes part of the topic names.
        partitions: number of partitions of each topic; environments are spread over them.
        assigned: partitions that this object sends to and reads, if several processes share a run.
            Default: all partitions.
        timeout_s: time limit in seconds for connecting and closing, which have no deadline.
        max_bytes: maximum size of one record with its key. The broker may have a lower limit.
        keep_topics: keep the topics and their content after the run, for `parllel messaging tap
            --from-start`.
        hosts: also receive the records of the run's other sessions, because `AgentHost` objects serve some
            of its agents. Requires all partitions.
        key: secret of at least 16 visible ASCII characters. All processes of the run sign their records
            with it, and drop others. None: records are not signed.
        config: settings of librdkafka, such as SASL and TLS.

    Attributes:
        session: 16 bytes, unique to this object.

    Raises:
        BrokerUnavailableError: if the broker does not answer within `timeout_s`.
        BrokerRefusedError: if it is not a Kafka broker, lacks a feature or denies permission.
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
        hosts: bool = False,
        key: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = ClientSettings(bootstrap, timeout_s, max_bytes, config or {})
        self.max_bytes = max_bytes
        self._topics = run_topics(run)
        self.partitions, self._assigned = partitions, _checked_partitions(partitions, assigned)
        self._keep_topics = keep_topics
        # blake2b takes keys of up to 64 bytes.
        self._key = None if key is None else blake2b(check_token(key, "key").encode()).digest()
        self._others: deque[OtherRecord] | None = None
        if hosts:
            if len(self._assigned) < partitions:
                raise ValueError(
                    f"assigned: expected all {partitions} partitions, because agents have hosts, got "
                    f"{list(self._assigned)}"
                )
            self._topics[HOSTS] = hosts_topic(run)
            self._others = deque()
        # Where each lane is read up to, which a new connection continues from.
        self._offsets: dict[tuple[str, int], int] = {}
        self.session = uuid.uuid4().bytes[:SESSION_BYTES]
        self._sessions_topic = sessions_topic(run)
        names = list(self._topics.values())
        self._admin = TopicAdmin(self._settings, names, partitions, self._sessions_topic)
        self._window = ReorderWindow()
        # `_lock` guards the window and the choice of the connection; `_receiving`, acquired first, keeps
        # polling and replacing connections to one thread.
        self._lock = threading.Lock()
        self._receiving = threading.Lock()
        self._closed = False
        # librdkafka's threads do not survive a fork, so a child process must not use this object.
        self._process = os.getpid()
        # Counters of connections that were replaced; the current one has its own.
        self._replaced = self._foreign = self._forged = 0
        # Only the thread in `receive` changes these, and the counters. `_deadline` is written by
        # the sending thread and read here without a lock: an old value only changes how long one
        # attempt may take.
        self._waited_s, self._answers, self._last_error = 0.0, 0, ""
        self._patience_s = self._first_patience()
        self._deadline = time.monotonic() + timeout_s
        self._connection = self._connect(self._deadline)

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Pass the records of a hop to the client, which sends them immediately.

        Raises:
            MessageTooLargeError: if a record is too large. In this case no record is sent.
            BrokerUnavailableError: if the client's queue is full at the deadline.
        """
        # A close may still follow: the connection is then marked as broken, and takes no records.
        self._check_usable()
        # All records are checked before the first is sent.
        partitions = [self._partition_of(record) for record in records]
        with self._lock:
            # Records of earlier epochs are dropped before any more are numbered.
            self._window.prune()
            # `receive` may take until then to replace a connection.
            self._deadline = deadline
            connection = self._connection
            for record, partition in zip(records, partitions, strict=True):
                number = self._window.add(record, (record.kind, partition))
                try:
                    # If the connection is broken, or breaks, the record goes with the next one.
                    self.blocked_s += connection.send(number, record, partition, deadline)
                except BufferError:
                    # Records before it are sent, and stay in the window. The broker passes all of the hop
                    # again; those that then arrive twice are dropped by their sequence numbers.
                    self._window.drop(number)
                    raise BrokerUnavailableError(
                        f"broker {self._settings.bootstrap}: the client's queue is full: "
                        f"{len(self._window)} records were not delivered by the deadline"
                    ) from None

    def receive(self, timeout_s: float) -> list[Record]:
        """Return the records that have arrived, in the order sent for each environment and kind.

        A broken connection is replaced. Reconnecting may take longer than `timeout_s`, up to the
        deadline of the last hop. If records are still missing after that, the caller must detect
        it; `trouble` returns the reason.

        Raises:
            BrokerRefusedError: if the broker denies permission.
            MessageTooLargeError: if the broker's limit is below `max_bytes`; refused records are not resent.
        """
        end = time.monotonic() + timeout_s
        with self._receiving:
            while True:
                self._check_usable()
                started = time.monotonic()
                # Polled without `_lock`, so that other threads can send meanwhile.
                arrived = self._connection.poll(max(0.0, min(_SLICE_S, end - started)))
                with self._lock:
                    for number, content in arrived:
                        self._window.arrive(number, content)
                    found = self._window.take()
                if arrived:
                    # Any record is a sign of life, also one that still waits for earlier ones.
                    self._waited_s, self._answers = 0.0, 0
                    self._patience_s = self._first_patience()
                if found or self._others:
                    return found
                now = time.monotonic()
                if len(self._window):
                    # Count time in here only, and at most two slices: neither a caller that is busy
                    # elsewhere nor a process that was stopped says anything about the broker.
                    self._waited_s += min(now - started, 2 * _SLICE_S)
                    self._raise_if_refused()
                    self._mend(now, max(end, self._deadline))
                if now >= end:
                    return []

    def reset(self, environment: bytes, lease: int, epoch: int) -> None:
        """Stop resending an environment's records up to now."""
        with self._lock:
            self._window.forget(environment)

    def take_others(self) -> list[OtherRecord]:
        """Return the records of the run's other sessions that have arrived, in the order of each session."""
        others, found = self._others, []
        while others:
            found.append(others.popleft())
        return found

    def trouble(self) -> str:
        """Return why records may be missing, or "" if all have arrived."""
        # Without the lock, which `send_hop` may hold until its deadline: this only explains errors.
        reason = self._last_error or self._connection.last_error()
        # Hosts and environments send signs of life all the time, so one is often on its way.
        if not (self._window.count_of_environments() or (reason and len(self._window))):
            return ""
        reason = reason or "it answers other requests"
        return f"broker {self._settings.bootstrap}: {len(self._window)} records did not come back ({reason})"

    def statistics(self) -> dict[str, int]:
        """Return counts of reconnections, and of foreign, forged, repeated and pending records."""
        return {
            "reconnected": self._replaced,
            "foreign": self._foreign + self._connection.foreign,
            "forged": self._window.forged + self._forged + self._connection.forged,
            "repeated": self._window.repeated,
            "in_flight": len(self._window),
        }

    def close(self) -> None:
        """Drop outstanding records, close the client, and delete the topics unless another session uses them.

        Idempotent. Failures to delete topics are logged.
        """
        if self._closed:
            return
        self._closed = True
        # Before the locks: a thread that the fork lacks may hold them for ever.
        if os.getpid() != self._process:
            return  # a forked child: the client's threads exist in the parent only
        deadline = time.monotonic() + min(self._settings.timeout_s, _CLOSE_S)
        # Both locks: no thread may be inside the client when it is destroyed.
        with self._receiving, self._lock:
            unused: set[str] = set()
            try:
                unused = self._leave(deadline)
            except BrokerUnavailableError as error:
                LOG.warning("the topics of the run were not deleted: %s", error)
            finally:
                self._connection.close()
        self._admin.delete(unused, min(self._settings.timeout_s, _CLOSE_S))

    def _leave(self, deadline: float) -> set[str]:
        """Announce that this session leaves. Returns the topics to delete, if it is the last one.

        Raises:
            BrokerUnavailableError: if the broker does not answer by the deadline.
        """
        # Before others learn that it leaves: a client crashes when a topic is deleted that it still reads.
        self._connection.stop_reading()
        last = self._announce(self._connection, deadline, leaves=True)
        if last is None:
            raise BrokerUnavailableError("could not announce that this session leaves")
        name = self.session.hex()
        with RunSessions(self._settings, self._sessions_topic, deadline, self._key) as sessions:
            sessions.read_until(last)
            if others := sessions.present():
                LOG.info("topics of the run stay: %d other sessions use them", len(others))
            unused = sessions.unused(name)
            if unused and not sessions.await_closed(name):
                raise BrokerUnavailableError("another session that leaves does not close")
        if not unused:
            self._announce(self._connection, deadline, leaves=True, closed=True)
        return unused

    def _announce(
        self,
        connection: KafkaConnection,
        deadline: float,
        *,
        leaves: bool = False,
        closed: bool = False,
    ) -> bytes | None:
        """Announce that this session joins, leaves or has closed. Returns the record, None on failure."""
        # A broker that denies the sessions topic still works; then the run's topics are never deleted.
        if not self._admin.has_optional:
            return None
        record = session_record(
            self.session.hex(),
            leaves=leaves,
            closed=closed,
            made=self._admin.made,
            keeps=self._keep_topics,
        )
        return record if connection.announce(self._sessions_topic, record, deadline) else None

    def _connect(self, deadline: float) -> KafkaConnection:
        """Open a connection, retrying until records come back through it.

        Raises:
            BrokerRefusedError: if the server is not a Kafka broker, lacks a feature or denies permission.
            BrokerUnavailableError: if there is no connection by the deadline.
        """
        began = time.monotonic()
        # A short attempt first, after which a probe tells whether the server is a Kafka broker at all.
        attempt_s = min(_FIRST_ATTEMPT_S, self._settings.timeout_s / 2)
        while True:
            connection = KafkaConnection(
                *(self._settings, self._topics, self._assigned, self.session),
                *(self._others, self._offsets, self._key),
            )
            try:
                end = min(deadline, time.monotonic() + attempt_s)
                connection.open(self._admin, end)
                # Announced on every connection: the sessions topic may have been lost with the old broker.
                self._announce(connection, end)
                return connection
            except BrokerUnavailableError as error:
                connection.poll(0)
                refused = connection.refused
                reason = "; ".join(filter(None, (_without_name(error), connection.last_error())))
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
                    f"broker {self._settings.bootstrap}: no answer from a broker within "
                    f"{time.monotonic() - began:.1f} s ({reason}); start it, or raise timeout_s"
                )
            time.sleep(_SLICE_S)
            # Bounded attempts: a connection to a broker that is starting may hang half-way, and a new one
            # succeeds.
            attempt_s = min(max(2 * attempt_s, 2 * _FIRST_ATTEMPT_S), _MAX_ATTEMPT_S)

    def _mend(self, now: float, deadline: float) -> None:
        """Replace the connection if a new one may bring the missing records.

        The time is added to `blocked_s`, but no more than it can take: the process may be stopped here, too.
        """
        replace = self._should_replace(now)
        asked = time.monotonic()
        self.blocked_s += min(asked - now, _PROBE_S)
        if replace:
            self._replace(deadline)
            self.blocked_s += min(time.monotonic() - asked, max(0.0, deadline - asked) + _PROBE_S)

    def _should_replace(self, now: float) -> bool:
        """Check whether a new connection may bring the missing records."""
        if self._connection.broken:
            return True
        # A short silence proves nothing: a busy broker looks the same.
        if self._waited_s < self._patience_s:
            return False
        probe_s = min(max(self._deadline - now, _SLICE_S), _PROBE_S)
        # Answered twice, with a poll in between: a broker that was stopped may just be sending its backlog.
        self._answers = self._answers + 1 if self._connection.answers(probe_s) else 0
        self._last_error = self._connection.last_error()
        return self._answers > 1

    def _replace(self, deadline: float) -> None:
        """Open a new connection, and send all outstanding records through it."""
        old = self._connection
        # From now on `send_hop` only registers records in the window.
        with self._lock:
            old.broken = old.broken or "nothing came back"
        LOG.warning(
            "broker %s: new connection for %d records (%s)",
            *(self._settings.bootstrap, len(self._window), old.last_error()),
        )
        old.close()
        try:
            new = self._connect(deadline)
        except BrokerUnavailableError as error:
            self._last_error = str(error)
            return  # the closed connection stays in place, and the next `receive` tries again
        with self._lock:
            self._window.prune()
            # Sent before `send_hop` can use the new connection. A failure marks it as broken, and the next
            # round replaces it.
            for number, record in self._window.missing():
                new.send(number, record, self._partition_of(record), deadline)
            self._foreign += old.foreign
            self._forged += old.forged
            self._connection = new
        self._replaced += 1
        self._waited_s, self._answers, self._last_error = 0.0, 0, ""
        self._patience_s = min(2 * self._patience_s, 2 * self._first_patience())

    def _raise_if_refused(self) -> None:
        connection = self._connection
        if connection.too_large:
            with self._lock:
                gone = [self._window.drop(number) for number in connection.too_large]
                # Under the lock, as a thread that sends may learn of another refusal as soon as it has it.
                connection.too_large.clear()
            sizes = sorted(len(record.content) for record in gone if record is not None)
            raise MessageTooLargeError(
                f"broker {self._settings.bootstrap}: records of up to {sizes[-1] if sizes else 0} "
                "bytes exceed the broker's limit; raise the limit (message.max.bytes), or lower "
                f"max_bytes, which is {self.max_bytes}"
            )
        if connection.refused:
            raise BrokerRefusedError(f"broker {self._settings.bootstrap}: {connection.refused}")

    def _partition_of(self, record: Record) -> int:
        if len(record.content) > self.max_bytes:
            raise MessageTooLargeError(
                f"record of {record.environment!r} ({record.kind}): expected at most "
                f"{self.max_bytes} bytes, got {len(record.content)}; raise max_bytes, or send less "
                "per step"
            )
        # A fixed function of the key, so that records of an environment always share a partition, and order.
        found = crc32(record.environment) % self.partitions
        if found not in self._assigned:
            raise ValueError(
                f"environment {record.environment!r} belongs to partition {found}, but this "
                f"process is assigned {self._assigned}; change `assigned` or the environment's id"
            )
        return found

    def _first_patience(self) -> float:
        return min(_PATIENCE_S, self._settings.timeout_s / 4)

    def _check_usable(self) -> None:
        if self._closed:
            raise ClosedError("KafkaTransport: used after it was closed")
        if os.getpid() != self._process:
            raise WrongStateError(
                "KafkaTransport: this transport was created before the process was forked; create "
                "one in each process"
            )


def _without_name(error: BrokerUnavailableError) -> str:
    """Strip the broker's name from an error message that is quoted after it."""
    return re.sub(r"^broker \S+: ", "", str(error))


def _checked_partitions(partitions: int, assigned: Sequence[int] | None) -> tuple[int, ...]:
    """Validate `partitions` and `assigned`, and return the assigned partitions.

    Raises:
        ValueError: if none is assigned, or one does not exist.
        TypeError: if one is not an int.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int):
        raise TypeError(f"partitions: expected an int, got {partitions!r}")
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise ValueError(f"partitions: expected 1 to {_MAX_PARTITIONS}, got {partitions}")
    if assigned is None:
        return tuple(range(partitions))
    found = tuple(sorted({operator.index(partition) for partition in assigned}))
    if not found or not 0 <= found[0] <= found[-1] < partitions:
        raise ValueError(
            f"assigned: expected partitions from 0 to {partitions - 1}, got {list(assigned)}"
        )
    return found


# The client retries until its deadline, whatever the server answers. This probe recognizes a server of
# another protocol at once.
def _wrong_answer(settings: ClientSettings, timeout_s: float) -> str | None:
    """Describe a server that answers but is not a Kafka broker; None if there is none.

    Only plain connections are probed, as others begin with a handshake.
    """
    protocol = str(settings.config.get("security.protocol", "plaintext")).lower()
    if protocol != "plaintext":
        return None
    for address in settings.addresses():
        answer = _ask(address, timeout_s)
        if len(answer) >= _HEAD_BYTES and not _is_broker(answer):
            return f"{address[0]}:{address[1]} is not a Kafka broker: it answers {answer[:16]!r}"
    return None


def _ask(address: tuple[str, int], timeout_s: float) -> bytes:
    """Return the first bytes of the answer to an ApiVersions request; fewer if the server sends no more."""
    head = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, len(_CLIENT)) + _CLIENT
    answer = b""
    try:
        with socket.create_connection(address, timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(head)) + head)
            while len(answer) < _HEAD_BYTES and (more := connection.recv(64)):
                answer += more
    except OSError:  # includes time-outs
        pass
    return answer


def _is_broker(answer: bytes) -> bool:
    length, correlation = struct.unpack_from(">ii", answer)
    return 4 <= length <= _MAX_ANSWER and bool(correlation == _CORRELATION)
