"""Pass records through a transport, and let threads wait for what they bring.

    a thread that flushes    --- send_hop -->  transport      one thread at a time (_sending)
    a thread that waits      <--- receive ---  transport      one thread at a time (_receiving)
                             --- arrive --->   the channels      with the exchange's lock

A thread that waits for a message may find it brought by another thread, so it looks again whenever it is
given `_receiving`, and does not wait for long at once. The exchange's lock is taken inside of the other two,
never around them, so that no thread holds it while the transport waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    MessagingError,
    SequenceGapError,
)
from parllel.distributed.messaging.exchange import Exchange
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.record_content import RecordHead, open_record
from parllel.distributed.messaging.transport import Record, Transport
from parllel.errors import ClosedError

# Longest time that one thread leaves others without a look at what has arrived.
_SLICE_S = 0.05
# A turn of waiting that took longer, on a busy machine too, was interrupted: by SIGSTOP, say, or a debugger.
_MAX_TURN_S = 1.0


class Delivery:
    """Send what the exchange has collected, and hand what arrives to its channels.

    What is of another run or broker, of an epoch that is over, damaged, or came before, is counted, dropped.

    Args:
        namespaces: of the broker, by the ids of environments.

    Attributes:
        stale: messages of epochs or leases that are over.
        foreign: records of others, or that are none.
        sent_records, sent_bytes, received_records: what went through the transport.
    """

    def __init__(
        self,
        exchange: Exchange,
        transport: Transport,
        namespaces: dict[str, Namespace],
        timeout_s: float,
    ) -> None:
        self._exchange = exchange
        self._transport = transport
        self._namespaces = namespaces
        self._timeout_s = timeout_s
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._unsent: list[Record] = []
        self._closed = False
        self.stale = self.foreign = 0
        self.sent_records = self.sent_bytes = self.received_records = 0

    def deadline(self, deadline: float | None) -> float:
        """Return a deadline, by default that of the broker's time-out."""
        return time.monotonic() + self._timeout_s if deadline is None else deadline

    def check_open(self) -> None:
        """Raise ClosedError if it was closed."""
        if self._closed:
            raise ClosedError("KafkaBroker: it was closed")

    def flush(self, deadline: float | None = None) -> None:
        """Send what was put, and take in what has come.

        Raises:
            BrokerUnavailableError: if it could not be sent; the next flush sends it again.
        """
        if self._exchange.outgoing or self._unsent:
            deadline = self.deadline(deadline)
            with self._sending:
                self.check_open()
                records = self._unsent + self._exchange.take_hop()
                # Those whose sending failed are sent again: what came twice is known by its number.
                self._unsent = records
                self._transport.send_hop(records, deadline)
                self._unsent = []
                self.sent_records += len(records)
                self.sent_bytes += sum(len(record.content) for record in records)
        if self._exchange.encoded:
            self._receive(0.0)

    def await_messages(self, channels: Sequence[Channel], deadline: float | None) -> None:
        """Flush, and receive until each channel has its message of the step; drop those of earlier steps.

        Raises:
            MissingMessageError: if one has not come by the deadline; names the first of them.
            SequenceGapError, BrokerUnavailableError, BrokerRefusedError: as `wait_until`.
        """
        missing = list(channels)

        def ready() -> bool:
            missing[:] = _unready(missing)
            return not missing

        if not self.wait_until(ready, missing, self.deadline(deadline)):
            others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise self.overdue(missing[0], f"the deadline is over{others}")

    def wait_until(
        self, ready: Callable[[], bool], channels: Sequence[Channel], deadline: float
    ) -> bool:
        """Flush, and receive until a function returns True; return False if it did not by the deadline.

        channels: those that are waited for; the function may remove some.

        Time in which this process did not run, as it was stopped, does not count.

        Raises:
            SequenceGapError: if what a channel waits for is lost.
            BrokerUnavailableError, BrokerRefusedError: if the transport fails; names the first channel.
        """
        try:
            while True:
                turn = self._start_turn()
                self.flush(deadline)
                with self._exchange.lock:
                    if ready():
                        return True
                    for channel in channels:
                        if channel.lease.fault is not None:
                            raise channel.lease.fault
                self.check_open()
                left = deadline - time.monotonic()
                if left <= 0 and not self._was_stopped(turn):
                    return False
                self._receive(max(0.0, min(left, _SLICE_S)), ready)
                if self._was_stopped(turn):
                    # What was left of it when this process last ran is left still.
                    deadline += time.monotonic() - turn[0]
                    self._transport.send_hop((), deadline)
        except (BrokerUnavailableError, BrokerRefusedError) as error:
            raise _while_waiting(error, channels) from error

    def _start_turn(self) -> tuple[float, float]:
        return time.monotonic(), self._transport.blocked_s

    def _was_stopped(self, turn: tuple[float, float]) -> bool:
        """Return whether a turn of waiting took longer than it can if this process runs."""
        started, blocked_s = turn
        passed_s = time.monotonic() - started - (self._transport.blocked_s - blocked_s)
        return passed_s > _MAX_TURN_S

    def _receive(self, timeout_s: float, ready: Callable[[], bool] | None = None) -> None:
        if not self._receiving.acquire(timeout=timeout_s):
            return
        try:
            if ready is not None:
                with self._exchange.lock:
                    if ready():
                        return
            if self._exchange.encoded:
                records = self._transport.receive(timeout_s)
            else:
                # Another thread may put the message; references pass through no transport.
                time.sleep(min(timeout_s, 0.001))
                records = []
            if records:
                with self._exchange.lock:
                    for record in records:
                        self._deliver(record)
                self.received_records += len(records)
        finally:
            self._receiving.release()

    def _deliver(self, record: Record) -> None:
        exchange = self._exchange
        try:
            head, values, payloads = open_record(record.content, exchange.max_bytes)
        except ValueError:  # a WireError too
            self.foreign += 1
            return
        if head.session != exchange.session or head.run != exchange.run:
            self.foreign += 1
            return
        namespace = self._namespaces.get(head.environment)
        if namespace is None or head[4:6] != (namespace.lease.number, namespace.lease.epoch):
            self.stale += len(payloads)
            return
        try:
            self._arrive(namespace, head, values, payloads)
        except (KeyError, TypeError):  # written by someone who has read one of ours
            self.foreign += 1

    def _arrive(
        self, namespace: Namespace, head: RecordHead, values: list[Any], payloads: list[Any]
    ) -> None:
        channels = namespace.ways[head.kind, head.custom_topic]
        step, each = head.step, iter(values)
        for sender, recipient, number, timestamp, payload in zip(
            each, each, each, each, payloads, strict=False
        ):
            channel = channels[sender, recipient]
            if number == channel.received and number < channel.sent:
                channel.arrive((step, number, timestamp, payload))
            elif number < channel.received:
                self._exchange.duplicates += 1
            elif namespace.lease.fault is None:
                namespace.lease.fault = _gap(channel, number)

    def forget(self, key: bytes) -> None:
        """Do not send again what an environment had sent before its reset."""
        if self._unsent:
            with self._sending:
                self._unsent = [record for record in self._unsent if record.environment != key]

    def reset(self, key: bytes, lease: int, epoch: int) -> None:
        """Let the transport know of an epoch that begins."""
        self.forget(key)
        if self._exchange.encoded:
            self._transport.reset(key, lease, epoch)

    def statistics(self) -> dict[str, int]:
        """Return what went through the transport, and what of it was dropped."""
        return {
            "stale": self.stale,
            "foreign": self.foreign,
            "sent_records": self.sent_records,
            "sent_bytes": self.sent_bytes,
            "received_records": self.received_records,
            **{f"transport_{name}": n for name, n in self._transport.statistics().items()},
        }

    def overdue(self, channel: Channel, why: str) -> MessagingError:
        """Return the error for a message that is not here: the transport's, if that is in trouble."""
        missing = channel.missing(why)
        trouble = self._transport.trouble()
        if not trouble:
            return missing
        lease = channel.lease
        return BrokerUnavailableError(
            f"{missing}; {trouble}", environment=lease.environment, step=lease.step
        )

    def close(self) -> None:
        """Close the transport, and end all waits."""
        self._closed = True
        self._transport.close()


def _gap(channel: Channel, number: int) -> SequenceGapError:
    return SequenceGapError(
        f"{channel}: expected message {channel.received}, got message {number}: those between were "
        "lost; reset the environment (clear_environment)",
        environment=channel.lease.environment,
        step=channel.lease.step,
    )


def _while_waiting(error: MessagingError, channels: Sequence[Channel]) -> MessagingError:
    if not channels:
        return error
    lease = channels[0].lease
    return type(error)(f"{channels[0]}: {error}", environment=lease.environment, step=lease.step)


def _unready(channels: Sequence[Channel]) -> list[Channel]:
    """Return the channels whose message of this step is not here."""
    return [
        channel
        for channel in channels
        if (not channel.queue or channel.queue[0][0] != channel.lease.step) and not channel.ready()
    ]
