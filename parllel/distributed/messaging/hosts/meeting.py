"""How the processes of a run with agent hosts meet, and receive each other's messages.

    environment side  --- beat, announcement, refusal, release --->  topic "hosts"  --->  all hosts
    host              --- beat, claim, problem, taken ------------>  topic "hosts"  --->  environment side
    each              --- actions, infos ------------------------->  other topics   --->  the recipient

A thread of each process sends a beat every second, even while the process computes. It stops when the process
is stopped or killed, which is how the others notice. Each record introduces its sender, which is recognized
by the session of its transport. Messages of an agent are accepted only from the session that runs it.

Handlers run with the exchange's lock held and must not send: replies are collected, and sent after the lock
is released.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.delivery import Delivery, gap
from parllel.distributed.messaging.errors import MissingMessageError
from parllel.distributed.messaging.exchange import Exchange
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.process_identity import is_gone, process_name, this_process
from parllel.distributed.messaging.record_content import RecordHead, open_record, read_id
from parllel.distributed.messaging.transport import HOSTS, Record, Transport
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.message import decode, encode
from parllel.errors import ParllelError

BEAT_S = 1.0
# Silence after which a member loses what another one claims. Both would otherwise have sent several beats.
CONTEST_S = 5.0
_LOOK_S = 0.1  # between looks at whether a process of this machine still runs
ENVIRONMENT_SIDE, HOST = "environment side", "host"


@dataclass(eq=False)
class Member:
    """Another process of the run, as its records introduce it.

    Attributes:
        session: session of its transport.
        heard: time of its last record, on the `time.monotonic` clock.
        contested: since when it claims something that another member has; None if it does not.
    """

    session: bytes
    role: str
    name: str
    process: Any
    heard: float
    contested: float | None = None
    _looked: float = 0.0
    _gone: bool = False

    def is_gone(self, silent_s: float) -> bool:
        """Check whether its process has ended, or it has been silent for `silent_s`."""
        now = time.monotonic()
        if now - self._looked > _LOOK_S:
            self._looked, self._gone = now, is_gone(self.process)
        return self._gone or now - self.heard > silent_s

    def loses_to(self, other: Member) -> bool | None:
        """Decide who keeps what both claim. None if it is not decided yet.

        The one that has it keeps it if it is heard of after the other's claim.
        """
        if self.is_gone(CONTEST_S):
            return True
        if other.contested is None:
            other.contested = time.monotonic()
        return False if self.heard > other.contested else None

    def __str__(self) -> str:
        """Return role, name and process, for messages."""
        name = f" {self.name!r}" if self.name else ""
        return f"{self.role}{name} ({process_name(self.process)})"


class Meeting(ABC):
    """One process's view of the others.

    Args:
        role: `ENVIRONMENT_SIDE` or `HOST`.
        name: name of a host; "" for the environment side.
        run: name of the run.
        partitions: number of partitions, which must be the same in all processes.

    Attributes:
        members: the other processes, by session.
    """

    def __init__(
        self,
        role: str,
        name: str,
        exchange: Exchange,
        delivery: Delivery,
        transport: Transport,
        namespaces: dict[str, Namespace],
    ) -> None:
        self.members: dict[bytes, Member] = {}
        self._role, self._name, self._process = role, name, this_process()
        self._exchange, self._delivery, self._transport = exchange, delivery, transport
        self._namespaces = namespaces
        self._replies: list[tuple[str, dict[str, Any]]] = []
        self._handlers: dict[str, Callable[[Member, dict[str, Any]], None]] = {"leave": self._leave}
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat, name=f"beats of {role}", daemon=True)

    def start(self) -> None:
        """Introduce this process to the others. Raises BrokerUnavailableError if that fails."""
        self._delivery.link = self
        self.send("beat")
        self._beating.start()

    def send(self, kind: str, **body: Any) -> None:
        """Send a record to all other processes."""
        body |= {"kind": kind, "role": self._role, "name": self._name, "process": self._process}
        body["partitions"] = self._transport.partitions
        self._delivery.send(Record(HOSTS, b"", encode({**self._about(), **body})))

    def reply(self, kind: str, **body: Any) -> None:
        """Send a record once the lock is released."""
        self._replies.append((kind, body))

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            # A broker that does not answer is reported to the threads that wait for messages.
            with contextlib.suppress(ParllelError):
                self.send("beat")
                self._idle()

    def take(self) -> None:
        """Deliver the records of other processes that have arrived. Called without locks."""
        with self._exchange.lock:
            for sender, record in self._transport.take_others():
                if record.kind == HOSTS:
                    self._hear(sender, record.content)
                else:
                    self._deliver(sender, record.content)
            replies, self._replies = self._replies, []
        # Every reply is repeated with a later beat if the cause remains.
        with contextlib.suppress(ParllelError):
            for kind, body in replies:
                self.send(kind, **body)

    def _hear(self, sender: bytes, content: bytes) -> None:
        limit = self._exchange.max_bytes
        try:
            body = decode(content, Limits(nbytes=limit, items=limit))
            member = self.members.get(sender)
            known = member is not None
            if member is None:
                role = {HOST: HOST, ENVIRONMENT_SIDE: ENVIRONMENT_SIDE}[body["role"]]
                member = Member(sender, role, str(body["name"]), body["process"], 0.0)
                self.members[sender] = member
            member.heard = time.monotonic()
            if body["partitions"] != self._transport.partitions:
                self._mismatch(
                    member,
                    f"has {body['partitions']} partitions, expected {self._transport.partitions}",
                )
            elif body["kind"] in self._handlers:
                self._handlers[body["kind"]](member, body)
            if not known:
                self._greet(member)
        # Anyone with access to the topic may have written anything.
        except (ValueError, TypeError, KeyError, AttributeError):
            self._delivery.foreign += 1

    def _deliver(self, sender: bytes, content: bytes) -> None:
        """Deliver messages of another process. The same checks as in `Delivery`, and who may send them."""
        delivery = self._delivery
        try:
            head, values, payloads = open_record(content, self._exchange.max_bytes)
        except ValueError:  # includes WireError
            delivery.foreign += 1
            return
        if head.session != self._exchange.session or head.run != self._exchange.run:
            delivery.foreign += 1
            return
        namespace = self._namespaces.get(head.environment)
        if namespace is None:
            delivery.stale += len(payloads)
            return
        self._adopt(namespace, sender, head)
        if head[4:6] != (namespace.lease.number, namespace.lease.epoch):
            delivery.stale += len(payloads)
            return
        try:
            self._deliver_each(
                sender, namespace, head, zip(*[iter(values)] * 4, payloads, strict=False)
            )
        except (KeyError, TypeError, ValueError):
            delivery.foreign += 1

    def _deliver_each(
        self, sender: bytes, namespace: Namespace, head: RecordHead, messages: Iterable[Any]
    ) -> None:
        channels = namespace.ways.get((head.kind, head.custom_topic), {})
        for one, other, number, timestamp, payload in messages:
            channel = channels.get((one, other))
            if channel is None or channel.key.recipient in namespace.remote:
                continue  # for an agent of another process
            if self._serving(namespace, read_id(one)) != sender or type(number) is not int:
                self._delivery.foreign += 1
            elif number == channel.received:
                channel.sent += 1  # on this side; the ledger accounts for it from here on
                self._arrive(namespace, channel, (head.step, number, timestamp, payload))
            elif number < channel.received:
                self._exchange.duplicates += 1
            elif namespace.lease.fault is None:
                namespace.lease.fault = gap(channel, number)

    def _arrive(self, namespace: Namespace, channel: Channel, item: tuple[Any, ...]) -> None:
        channel.arrive(item)

    def _about(self) -> dict[str, Any]:
        """Return what each record says besides its kind and its sender."""
        return {}

    def _idle(self) -> None:
        """Do what is due once per beat, in the thread of the beats."""

    def _adopt(self, namespace: Namespace, sender: bytes, head: RecordHead) -> None:
        """Follow the environment side to its epoch and step. Only hosts do."""

    @abstractmethod
    def _serving(self, namespace: Namespace, agent: str) -> bytes | None:
        """Return the session that may send as this agent."""

    @abstractmethod
    def _greet(self, member: Member) -> None:
        """Answer a member that was unknown, with `reply`."""

    @abstractmethod
    def _mismatch(self, member: Member, what: str) -> None:
        """Refuse a member with other settings."""

    @abstractmethod
    def _leave(self, member: Member, body: dict[str, Any]) -> None:
        """Forget a member that has closed."""

    @abstractmethod
    def explain(self, channel: Channel, error: MissingMessageError) -> MissingMessageError:
        """Return the error for an overdue message, with the host of its sender."""

    def close(self) -> None:
        """Announce that this process leaves. Idempotent."""
        # In a forked child there is no thread, and another process may hold the locks.
        if self._stop.is_set() or os.getpid() != self._process["pid"]:
            return
        self._stop.set()
        self._beating.join()
        with contextlib.suppress(ParllelError):
            self.send("leave")
            # A transport that closes drops what the broker has not stored.
            deadline = time.monotonic() + BEAT_S
            while self._transport.statistics().get("in_flight") and time.monotonic() < deadline:
                self._delivery.receive(0.05)
