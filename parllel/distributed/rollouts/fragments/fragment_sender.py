"""Fragments on their way from a worker to a storage.

    worker's thread -- put --> queue -- sender thread: storage.add --> storage
                    <-- await_room: waits while the queue is full

One lock guards the queue. The sender adds what there is in one call, and takes a fragment out only when the
storage is done with it, so what is not acknowledged is added again. What the storage raises ends the sender
thread; the worker's next call raises it, with its traceback.
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

# Between two additions that were of no use.
_PAUSE_S = 0.001
# Each addition to a storage elsewhere costs a message, whatever is in it; more would only grow the message.
_MAX_AT_ONCE = 64
# Everything that changes wakes those who wait; with a limit, no wake that is lost can be for ever.
_MAX_WAIT_S = 1.0
# How long the storage may take for an addition beyond the time that it was given.
_LATE_S = 5.0


class FragmentSender(Closeable):
    """Hand fragments to a storage in a thread, so that environments do not wait for it.

    The storage is not closed with the sender: others may use it. A sender that is not closed lives as long as
    the program, as its thread holds it.

    Args:
        storage: where fragments go.
        capacity: fragments in the queue at which workers wait. `put` itself never waits, so the queue may
            exceed it by as many fragments as one call of a schedule completes.
        max_staleness: by how many versions the oldest step of a fragment may be older than the newest weights
            when it is sent; None sets no limit.

    Attributes:
        ledger: where all fragments went. `produced` were put, or dropped before they were full; `accepted`
            are those that the storage took, `stale` were too old, `rejected` were in the addition for which
            the storage raised an error, `lost` were in the queue when the sender ended, and `queued` are
            there now.
        version: the newest that `new_version` was given.

    Raises:
        TypeError: if the storage is none, or a number is not whole.
        ValueError: for a capacity of less than one, or a staleness below zero.
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
        self._sent: list[SampleFragment] = []  # the first of the queue, while the storage has them
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._raised = self._ended = False
        self._close_by: float | None = None
        # A daemon, as a sender that is not closed must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="fragment sender", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the worker's side

    def put(self, *fragments: SampleFragment) -> None:
        """Queue fragments; wait with `await_room` before more are made.

        Raises:
            ClosedError: after `close`.
            Exception: what the storage raised.
        """
        for fragment in fragments:
            check_kind("FragmentSender: put", fragment, SampleFragment)
        with self._changed:
            self._check()
            self._queue.extend(fragments)
            self.ledger.add(produced=len(fragments), queued=len(fragments))
            # Once for all, as each wake of the sender thread takes the interpreter from the worker.
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
        """How many fragments wait to be sent."""
        # Without the lock, as a length is read at once, and may be another by the time it is used anyway.
        return len(self._queue)

    def new_version(self, version: int) -> None:
        """Say which version of the weights there is now; one below the newest changes nothing."""
        with self._changed:
            self.version = max(self.version, check_integer("FragmentSender: version", version))

    def is_stale(self, oldest_version: int) -> bool:
        """Return whether experience of a version is too old to be sent."""
        # Without the lock: what a version misses that comes at this moment is judged again in the storage.
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
            while fragments := self._next():
                # Outside of the lock: it may wait for room there, while the worker goes on.
                done = self.storage.add(fragments, self.storage.add_wait_s)
                if not isinstance(done, Integral) or not 0 <= done <= len(fragments):
                    raise ValueError(
                        f"{type(self.storage).__name__}.add: expected from 0 to {len(fragments)}, the "
                        f"fragments that it was given, got {done!r}"
                    )
                self._done("accepted", done)
                self._sent = []
                if not done:
                    # A storage that does not wait for room itself would be asked without a pause.
                    sleep(_PAUSE_S)
        except BaseException as error:
            self._fail(error)
        with self._changed:
            # Nothing can leave the queue any more.
            self._ended = True
            self._done("lost", len(self._queue))

    def _next(self) -> list[SampleFragment]:
        """Wait for fragments that are not too old; return none once the sender is to end."""
        with self._changed:
            while True:
                close_by = self._close_by
                if close_by is not None and (not self._queue or monotonic() >= close_by):
                    return []
                # Up to the first that is too old, as they leave the queue in order.
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
        """Take out the first fragments, and count them."""
        # The lock may be held already: a Condition's is reentrant.
        with self._changed:
            for _ in range(n):
                self._queue.popleft()
            self.ledger.add(**{where: n}, queued=-n)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._done("rejected", len(self._sent))

    # ------------------------------------------------------------------ the end

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued for so long, count the rest as lost, and end the thread; may be called twice.

        Raises:
            WorkerTimeoutError: if the storage does not return from an addition.
            Exception: what the storage raised, unless a call before has raised it.
        """
        deadline = deadline_of("FragmentSender: close: timeout_s", timeout_s)
        with self._changed:
            if self._close_by is None:
                self._close_by = deadline
                self._changed.notify_all()
            # Not `join` alone: in Python below 3.13, one that Ctrl-C interrupts takes the thread for ended.
            while not self._ended and (left_s := deadline + _LATE_S - monotonic()) > 0:
                self._changed.wait(min(left_s, _MAX_WAIT_S))
        if not self._ended:
            raise WorkerTimeoutError(
                f"FragmentSender: {type(self.storage).__name__}.add did not return within {_LATE_S:g} s; "
                "it must keep to the timeout_s that it is given"
            )
        self._thread.join()
        # Not twice: an error that leaves a `with` block would meet itself here.
        if self._error is not None and not self._raised:
            self._raised = True
            raise self._error
