"""Those who see messages without consuming them: callbacks and taps."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.message_tap import MessageTap
from parllel.distributed.messaging.place import Place
from parllel.distributed.messaging.subscription import Subscription

_LOGGER = logging.getLogger("parllel.distributed.messaging")
# Calls that may wait while another thread is in a callback, before those who cause more have to wait too.
_MOST_CALLS = 1024


class Watchers:
    """Show messages to callbacks and taps, in the order in which they arrived.

        who delivers a message, with the broker's lock   --- saw --->  calls, taps
        who called the broker, when it has let it go     <--- run ---  calls

    A callback may use the broker, and take its time, since the lock is not held; one thread at a time runs
    them, so that their order stays. What a callback causes is called after it.

    Attributes:
        taps: those who get a copy of what arrives.
        failures: exceptions that callbacks raised.
    """

    def __init__(self) -> None:
        self.taps: list[MessageTap] = []
        self.failures = 0
        self._calls: deque[tuple[Subscription, KafkaMessage, Place, int]] = deque()
        self._running = threading.Lock()
        self._runner: int | None = None

    def saw(
        self, message: KafkaMessage, subscriptions: Sequence[Subscription], place: Place
    ) -> None:
        """Note that a message has arrived."""
        for tap in self.taps:
            tap.offer(message)
        self._calls += [(one, message, place, place.epoch) for one in subscriptions]

    def run(self, timeout_s: float) -> None:
        """Call the callbacks of what has arrived; another thread that does so already goes on with these."""
        me = threading.get_ident()
        if not self._calls or self._runner == me:
            return
        # The thread that has just made its last call would miss ours: so look again.
        while self._calls and self._acquire(timeout_s):
            self._runner = me
            try:
                while self._calls:
                    self._call(*self._calls.popleft())
            finally:
                self._runner = None
                self._running.release()

    def _acquire(self, timeout_s: float) -> bool:
        if len(self._calls) > _MOST_CALLS:
            return self._running.acquire(timeout=timeout_s)
        return self._running.acquire(blocking=False)

    def _call(
        self, subscription: Subscription, message: KafkaMessage, place: Place, epoch: int
    ) -> None:
        # A reset, or the end of the environment, ends what waits here as it does in the queues.
        if not subscription.active or place.left or place.epoch != epoch:
            return
        try:
            subscription.callback(message)
        except Exception:
            self.failures += 1
            if not subscription.reported:
                subscription.reported = True
                _LOGGER.exception(
                    "a callback of %s %r -> %r in environment %r failed; more failures are counted alone",
                    *(message.message_type.value, message.sender_id, message.recipient_id),
                    message.env_id,
                )
