"""The sender of a worker's fragments to a storage.

    worker's thread -- put --> queue -- sender thread: storage.add --> storage
                    <-- await_room: waits while the queue is full

One lock guards the queue. The sender adds all queued fragments in one call, and removes a fragment only when
the storage has handled it, so unacknowledged ones are added again. An error of the storage ends the sender
thread, and the worker's next call raises it, with its traceback.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice, takewhile
from numbers import Integral
from time import monotonic, sleep

from parllel.distributed.rollouts.arguments import (
    check_count,
    check_integer,
    check_kind,
    check_staleness,
    deadline_of,
)
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.errors import ClosedError, WorkerTimeoutError
from parllel.logging.ledger import Ledger
from parllel.types import Closeable

# Pause after an addition that added nothing.
_PAUSE_S = 0.001
# Each addition to a remote storage costs a message; beyond this, more fragments only make it longer.
_MAX_AT_ONCE = 64
# Longest single wait. Every change wakes the waiting threads; the limit guards against lost wake-ups.
_MAX_WAIT_S = 1.0
# Time that the storage may take for an addition beyond its time-out.
_LATE_S = 5.0


class FragmentSender(Closeable):
    """Adds fragments to a storage in a thread, so that environments do not wait for it.

    The storage is not closed with the sender, since others may use it. A sender that is not closed lives as
    long as the program, because its thread refers to it.

    Args:
        storage: the storage.
        capacity: queue length at which workers wait. `put` itself never waits, so the queue may exceed it by
            the fragments that one turn of a schedule completes.
        max_staleness: maximum number of versions by which the oldest step of a fragment may lag
            behind the newest weights when it is sent. None for no limit.

    Attributes:
        ledger: number of fragments by outcome. `produced` were put, or dropped before they were
            full; `accepted` were handled by the storage, `stale` were too old, `rejected` were in
            an addition that raised an error, `lost` were in the queue when the sender ended, and
            `queued` are in it now.
        version: the newest version passed to `new_version`.

    Raises:
        TypeError: if the storage is not a ReplayBufferInterface, or a number is not whole.
        ValueError: for a capacity of less than 1, or a negative staleness.
    """

    def __init__(
        self,
        storage: ReplayBufferInterface,
        *,
        capacity: int = 16,
        max_staleness: int | None = None,
    ) -> None:
        check_kind("FragmentSender: storage", storage, ReplayBufferInterface)
        self.storage = storage
        self.capacity = check_count("FragmentSender: capacity", capacity)
        self.max_staleness = check_staleness("FragmentSender: max_staleness", max_staleness)
        self.ledger = Ledger("produced = accepted + stale + rejected + lost + queued")
        self.version = 0
        self._queue: deque[SampleFragment] = deque()
        self._sent: list[SampleFragment] = []  # head of the queue that is being added
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._raised = self._ended = False
        self._close_by: float | None = None
        # A daemon, so that a sender that is not closed does not keep the program alive.
        self._thread = threading.Thread(target=self._run, name="fragment sender", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the worker's side

    def put(self, *fragments: SampleFragment) -> None:
        """Queue fragments without waiting. Call `await_room` before producing more.

        Raises:
            ClosedError: after `close`.
            Exception: an error of the storage.
        """
        for fragment in fragments:
            check_kind("FragmentSender: put", fragment, SampleFragment)
        with self._changed:
            self._check()
            self._queue.extend(fragments)
            self.ledger.add(produced=len(fragments), queued=len(fragments))
            # One wake-up for all fragments, as each one takes the interpreter from the worker.
            self._changed.notify_all()

    def await_room(self, timeout_s: float) -> bool:
        """Wait until the queue is below its capacity. Returns False on time-out.

        Raises the same errors as `put`.
        """
        return self._await_below(self.capacity, timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty. Returns False on time-out.

        Raises the same errors as `put`.
        """
        return self._await_below(1, timeout_s)

    def _await_below(self, length: int, timeout_s: float) -> bool:
        deadline = deadline_of("FragmentSender: timeout_s", timeout_s)
        with self._changed:
            while True:
                self._check()
                if len(self._queue) < length:
                    return True
                left_s = deadline - monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, _MAX_WAIT_S))

    @property
    def queued(self) -> int:
        """Number of fragments waiting to be sent."""
        # Without the lock: reading a length is atomic, and it may change right afterwards anyway.
        return len(self._queue)

    def new_version(self, version: int) -> None:
        """Set the current version of the weights. A lower one has no effect."""
        with self._changed:
            # Wakes nobody: the sender thread judges fragments whenever it chooses the next ones.
            self.version = max(self.version, check_integer("FragmentSender: version", version))

    def is_stale(self, oldest_version: int) -> bool:
        """Check whether experience of a version is too old to be sent."""
        # Without the lock: if a version arrives at this moment, the storage checks again.
        limit = self.max_staleness
        return limit is not None and self.version - oldest_version > limit

    def count_stale(self) -> None:
        """Count a fragment that was dropped as too old before it was full."""
        self.ledger.add("produced", "stale")

    def _check(self) -> None:
        if self._error is not None:
            self._raised = True
            # The original exception, whose traceback leads into the sender thread.
            raise self._error
        if self._close_by is not None:
            raise ClosedError("FragmentSender: used after close()")

    # ------------------------------------------------------------------ the sender thread

    def _run(self) -> None:
        try:
            while fragments := self._next():
                # Without the lock: this may wait for room, while the worker goes on.
                done = self.storage.add(fragments, self.storage.add_wait_s)
                if not isinstance(done, Integral) or not 0 <= done <= len(fragments):
                    raise ValueError(
                        f"{type(self.storage).__name__}.add: expected a result from 0 to "
                        f"{len(fragments)}, the number of fragments, got {done!r}"
                    )
                self._done("accepted", done)
                # Fragments that were not handled are still in the queue, and are chosen again.
                self._sent = []
                if not done:
                    # A storage that does not wait for room itself would cause a busy loop.
                    sleep(_PAUSE_S)
        except BaseException as error:
            self._fail(error)
        with self._changed:
            # No fragment can leave the queue any more.
            # None can enter either: `_error` or `_close_by` is set, so `put` raises.
            self._ended = True
            self._done("lost", len(self._queue))

    def _next(self) -> list[SampleFragment]:
        """Wait for fragments that are not too old. Returns none once the sender should end."""
        with self._changed:
            while True:
                close_by = self._close_by
                if close_by is not None and (not self._queue or monotonic() >= close_by):
                    return []
                # Up to the first stale one, because fragments leave the queue in order.
                # Kept for `_fail`, which counts exactly these as rejected.
                self._sent = list(islice(takewhile(self._is_fresh, self._queue), _MAX_AT_ONCE))
                if self._sent:
                    return self._sent
                if self._queue:
                    self._done("stale", 1)
                    continue
                if close_by is None:
                    self._changed.wait(_MAX_WAIT_S)

    def _is_fresh(self, fragment: SampleFragment) -> bool:
        return self.max_staleness is None or not self.is_stale(fragment.oldest_version)

    def _done(self, where: str, n: int) -> None:
        """Remove the first `n` fragments, and count them under `where`."""
        # The caller may hold the lock already; a Condition's lock is reentrant.
        with self._changed:
            for _ in range(n):
                self._queue.popleft()
            self.ledger.add(**{where: n}, queued=-n)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            # With the count under one lock: whoever sees the error finds its fragments counted.
            self._error = error
            self._done("rejected", len(self._sent))

    # ------------------------------------------------------------------ the end

    def close(self, timeout_s: float = 5.0) -> None:
        """Send queued fragments until the time-out, count the rest as lost, and end the thread. Idempotent.

        Raises:
            WorkerTimeoutError: if the storage does not return from an addition.
            Exception: an error of the storage, unless an earlier call has raised it.
        """
        deadline = deadline_of("FragmentSender: close: timeout_s", timeout_s)
        with self._changed:
            # The first call sets the deadline; later ones only wait for the thread again.
            if self._close_by is None:
                self._close_by = deadline
                self._changed.notify_all()
            # Not `join` alone: before Python 3.13, a `join` interrupted by Ctrl-C marks the thread as ended.
            while not self._ended and (left_s := deadline + _LATE_S - monotonic()) > 0:
                self._changed.wait(min(left_s, _MAX_WAIT_S))
        if not self._ended:
            raise WorkerTimeoutError(
                f"FragmentSender: {type(self.storage).__name__}.add did not return within "
                f"{_LATE_S:g} s; it must respect its argument timeout_s"
            )
        self._thread.join()
        # Raised once only: an error that leaves a `with` block must not be raised again on closing.
        if self._error is not None and not self._raised:
            self._raised = True
            raise self._error
