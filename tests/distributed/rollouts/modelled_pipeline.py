"""Workers, their senders, one buffer and a trainer, with what must have become of every fragment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from modelled_worker import PATIENCE_S, Producer
from rollout_model import oldest_of
from watched_parts import MishapError, WatchedBuffer
from worker_plan import Plan

from parllel.errors import ClosedError

# What may happen in the middle of a run; the rest are faults of environments.
IN_A_RUN = ("fetch", "load", "fetch", "publish", "fetch")


class Pipeline:
    """Whoever uses it is the trainer, and the thread of all workers; senders have their own.

    Each method is something that may happen; numbers choose from what there is. Afterwards `check` waits
    until nothing is on its way and compares all counters with the model.

    eager: whether the trainer fetches a fragment when a worker waits for room.
    """

    def __init__(
        self, plans: Sequence[Plan], faults: Sequence[str], buffer: WatchedBuffer, *, eager: bool
    ) -> None:
        self.buffer, self.faults, self.eager = buffer, faults, eager
        self.version, self.closed = 0, False
        self.draws: dict[Any, int] = {}
        self.producers: list[Producer] = []
        try:
            for number, plan in enumerate(plans):
                self.producers.append(Producer(str(number), plan, buffer, self._do))
        except BaseException:
            self.end()
            raise

    def _chosen(self, number: int) -> Producer:
        return self.producers[number % len(self.producers)]

    # ------------------------------------------------------------------ what may happen

    def run(self, number: int, n_steps: int, events: Sequence[tuple[int, int, int]]) -> None:
        """Run a worker; events are `(after how many steps, what, number)`."""
        kinds = (*IN_A_RUN, *self.faults)
        self._chosen(number).run(
            n_steps, [(after, kinds[what % len(kinds)], which) for after, what, which in events]
        )

    def _do(self, producer: Producer, what: str, number: int) -> None:
        if what == "load":
            self.load(number, number - 1)
        elif what == "publish":
            self.publish(number % 2)
        elif what == "fetch":
            self.fetch(1 + number // 2, None)
        elif what == "full":
            if not self.eager or self.closed or not self.fetch(1, None):
                producer.worker.stop()
        elif what == "handler":
            raise MishapError("the progress handler")
        elif what in ("sender", "buffer"):
            self.finish(what, number)
        else:
            producer.fail(what, number)

    def load(self, number: int, by: int) -> None:
        """Give one worker weights, older or newer ones."""
        producer = self._chosen(number)
        producer.load(max(0, producer.newest + by))

    def publish(self, by: int) -> None:
        """Give all workers the same weights, and tell the buffer."""
        version = max(self.version, *(producer.newest for producer in self.producers)) + by
        for producer in self.producers:
            producer.load(version)
        self.announce(version - self.version)

    def announce(self, by: int) -> None:
        """Tell the buffer alone, as others may have published."""
        self.buffer.new_version(self.version + by)
        self.version += max(0, by)

    def fetch(self, n: int, by: int | None) -> int:
        """Take fragments as a trainer does; return how many there were."""
        n, before = min(n, self.buffer.capacity), len(self._present())
        version = None if by is None else self.version + by
        if self.closed:
            with pytest.raises(ClosedError, match="fetch: the buffer is closed"):
                self.buffer.fetch(n, 0.0, version)
            return 0
        # The very ones: what `fetch` returns may be copies.
        fragments = self.buffer.borrow(n, 0.0, version)
        self.version = max(self.version, version or 0)
        # There may be more by now, and less only if some have become too old.
        assert len(fragments) in ((n,) if before >= n and version is None else (0, n))
        assert len({fragment.key for fragment in fragments}) == len(fragments)
        for fragment in fragments:
            producer = self.producers[int(fragment.producer)]
            assert producer.sender.known[fragment.key] is fragment
            assert not self._too_old(fragment), "handed out though too old"
            self.draws[fragment.key] = self.draws.get(fragment.key, 0) + 1
            assert self.draws[fragment.key] <= self.buffer.max_reuse
        return len(fragments)

    def disturb(self, number: int, what: str, times: int) -> None:
        """Let the storage of a worker be slow, forget to answer, or fail."""
        self._chosen(number).storage.mishaps += [what] * times

    def add_again(self, which: int) -> None:
        """Add what the buffer has had."""
        known = [*self.buffer.arrived.values()]
        if known and not self.closed:
            before, ledger = self.buffer.duplicates, self.buffer.ledger.counts()
            assert self.buffer.add([known[which % len(known)]], 0.0) == 1
            assert self.buffer.duplicates == before + 1
            assert self.buffer.ledger.counts() == ledger

    def finish(self, what: str, number: int) -> None:
        """Let one part end before the others."""
        producer = self._chosen(number)
        if what == "worker":
            producer.close_worker()
            producer.ended = producer.ended or ClosedError("by the test")
        elif what == "sender":
            producer.close_sender(0.01 * number)
        else:
            self.buffer.close()
            self.closed = True

    def finish_in_a_run(self, what: str, number: int) -> None:
        """Let one part end while a worker works."""
        self._chosen(number).run(30, [(8, what, number)])

    # ------------------------------------------------------------------ what must be

    def _too_old(self, fragment: Any) -> bool:
        limit = self.buffer.max_staleness
        return limit is not None and self.version - oldest_of(fragment) > limit

    def _arrived(self) -> list[Any]:
        return list(self.buffer.arrived.values())

    def _present(self) -> list[Any]:
        """Return what can be fetched: all that ever came, but what was used up or is too old."""
        most = self.buffer.max_reuse
        return [
            f for f in self._arrived() if self.draws.get(f.key, 0) < most and not self._too_old(f)
        ]

    def _wait_until_still(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            full = not self.closed and self.buffer.prepared() == self.buffer.capacity
            if all(one.still(full, self._too_old) for one in self.producers):
                return
            assert time.monotonic() < deadline, "a sender is stuck"
            time.sleep(2e-4)

    def check(self) -> None:
        """Wait until nothing is on its way, and compare everything with the model."""
        self._wait_until_still()
        for producer in self.producers:
            producer.check()
        counts, arrived = self.buffer.ledger.counts(), self._arrived()
        self.buffer.ledger.check()
        fresh = [f for f in arrived if f.key not in self.draws]
        if self.closed:
            gone = [f for f in fresh if f.key not in self.buffer.unused_at_the_end]
            expected = {"lost": len(fresh) - len(gone), "queued": 0}
        else:
            gone = [f for f in fresh if self._too_old(f)]
            expected = {"lost": 0, "queued": len(fresh) - len(gone)}
            # A fragment that came too late has taken the place of none.
            assert self.buffer.prepared() == len(self._present()) <= self.buffer.capacity
        expected.update(added=len(arrived), accepted=len(self.draws), stale=len(gone))
        assert counts == expected

    def finish_all(self) -> None:
        """End everything in the order of a run that is over, and check what is left."""
        for producer in self.producers:
            producer.close_worker()
            producer.close_sender(0.0)
        self.check()
        for producer in self.producers:
            producer.check_unchanged()

    def end(self) -> None:
        """Leave nothing behind, whatever has failed."""
        for producer in self.producers:
            producer.end()
        self.buffer.close()
