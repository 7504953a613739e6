"""Fragments on their way from a worker to a storage.

    worker's thread -- put --> queue -- sender thread: storage.add --> storage
                    <-- await_room: waits while the queue is full

One lock guards the queue. The sender takes a fragment out only when the storage is done with it, so what is
not acknowledged is added again. What the storage raises ends the sender thread; the worker's next call raises
it, with its traceback.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from types import TracebackType

from parllel.errors import ClosedError, WorkerTimeoutError
from parllel.logging import Ledger
from parllel.rollouts.replay_buffer_interface import ReplayBufferInterface
from parllel.rollouts.sample_fragment import SampleFragment

# What one addition may wait for room: so long a sender that is closed may go on.
_SLICE_S = 0.1
# Everything that changes wakes those who wait; with a limit, no wake that is lost can be for ever.
_LONGEST_WAIT_S = 1.0
# How long the storage may take for an addition beyond the time that it was given.
_LATE_S = 5.0


class FragmentSender:
    """Hand fragments to a storage in a thread, so that environments do not wait for it.

    The storage is not closed with the sender: others may use it.

    Args:
        storage: where fragments go.
        capacity: fragments in the queue at which workers wait. `put` itself never waits, so the queue may
            exceed it by as many fragments as one call of a schedule completes.
        max_staleness: by how many versions the oldest step of a fragment may be older than the newest weights
            when it is sent; None sets no limit.

    Attributes:
        ledger: where all fragments went. `produced` were put, or dropped before they were full; `accepted`
            are those that the storage took, `stale` were too old, `rejected` is what the storage raised an
            error for, `lost` were in the queue when the sender ended, and `queued` are there now.
        version: the newest that `new_version` was given.

    Raises:
        ValueError: for a capacity of less than one, or a staleness below zero.
    """

    def __init__(
        self,
        storage: ReplayBufferInterface,
        *,
        capacity: int = 16,
        max_staleness: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"FragmentSender: capacity: expected at least 1, got {capacity}")
        if max_staleness is not None and max_staleness < 0:
            raise ValueError(
                "FragmentSender: max_staleness: expected 0 or more, or None for no limit, "
                f"got {max_staleness}"
            )
        self.storage = storage
        self.capacity = capacity
        self.max_staleness = max_staleness
        self.ledger = Ledger("produced = accepted + stale + rejected + lost + queued")
        self.version = 0
        self._queue: deque[SampleFragment] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._raised = False
        self._close_by: float | None = None
        self._thread = threading.Thread(target=self._run, name="fragment sender", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the worker's side

    def put(self, fragment: SampleFragment) -> None:
        """Queue a fragment; wait with `await_room` before more are made.

        Raises:
            ClosedError: after `close`.
            Exception: what the storage raised.
        """
        with self._changed:
            self._check()
            self._queue.append(fragment)
            self.ledger.add("produced", "queued")
            self._changed.notify_all()

    def await_room(self, timeout_s: float) -> bool:
        """Wait until the queue is below its capacity; return False if the time was up before.

        Raises: as `put`.
        """
        return self._await_below(self.capacity, timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty; return False if the time was up before.

        Raises: as `put`.
        """
        return self._await_below(1, timeout_s)

    def _await_below(self, length: int, timeout_s: float) -> bool:
        deadline = monotonic() + timeout_s
        with self._changed:
            while True:
                self._check()
                if len(self._queue) < length:
                    return True
                left_s = deadline - monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, _LONGEST_WAIT_S))

    @property
    def queued(self) -> int:
        """How many fragments wait to be sent."""
        return len(self._queue)

    def new_version(self, version: int) -> None:
        """Say which version of the weights there is now; one below the newest changes nothing."""
        with self._changed:
            self.version = max(self.version, version)

    def is_stale(self, oldest_version: int) -> bool:
        """Return whether experience of a version is too old to be sent."""
        limit = self.max_staleness
        return limit is not None and self.version - oldest_version > limit

    def count_stale(self) -> None:
        """Count a fragment that was dropped before it was full, as it had become too old."""
        self.ledger.add("produced", "stale")

    def _check(self) -> None:
        if self._error is not None:
            self._raised = True
            # The same object, so that its traceback shows where in the sender thread it came from.
            raise self._error
        if self._close_by is not None:
            raise ClosedError("FragmentSender: used after close()")

    # ------------------------------------------------------------------ the sender thread

    def _run(self) -> None:
        try:
            while (head := self._next()) is not None:
                # Outside of the lock: it may wait for room there, while the worker goes on.
                if self.storage.add([head], _SLICE_S) == 1:
                    self._done("accepted")
        except BaseException as error:
            self._fail(error)
        with self._changed:
            # Nothing can leave the queue any more.
            lost = len(self._queue)
            self._queue.clear()
            self.ledger.add(queued=-lost, lost=lost)
            self._changed.notify_all()

    def _next(self) -> SampleFragment | None:
        """Wait for the next fragment that is not too old; None once the sender is to end."""
        with self._changed:
            while True:
                close_by = self._close_by
                if close_by is not None and (not self._queue or monotonic() >= close_by):
                    return None
                if not self._queue:
                    self._changed.wait(_LONGEST_WAIT_S)
                elif self.is_stale(self._queue[0].oldest_version):
                    self._done("stale")
                else:
                    return self._queue[0]

    def _done(self, where: str) -> None:
        """Take out the first fragment, and count it."""
        # The lock may be held already: a Condition's is reentrant.
        with self._changed:
            self._queue.popleft()
            self.ledger.add(where, queued=-1)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            if self._queue:
                self._done("rejected")

    # ------------------------------------------------------------------ the end

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued for so long, count the rest as lost, and end the thread; may be called twice.

        Raises:
            WorkerTimeoutError: if the storage does not return from an addition.
            Exception: what the storage raised, unless a call before has raised it.
        """
        with self._changed:
            if self._close_by is None:
                self._close_by = monotonic() + timeout_s
                self._changed.notify_all()
        self._thread.join(timeout_s + _LATE_S)
        if self._thread.is_alive():
            raise WorkerTimeoutError(
                f"FragmentSender: {type(self.storage).__name__}.add did not return within {_LATE_S:g} s; "
                "it must keep to the timeout_s that it is given"
            )
        if self._error is not None and not self._raised:
            self._raised = True
            raise self._error

    def __enter__(self) -> FragmentSender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
