"""The replay buffer for workers and a trainer in one process.

    sender threads -- add --> entries (at most `capacity`) -- fetch --> trainer
                                   ^
                 new_version (drops what is too old)

One lock guards everything. Each change of the entries wakes all waiting threads, which check again: producers
for room, the trainer for enough fragments. Nothing is dropped to make room.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, get_args

import numpy as np

from parllel.distributed.rollouts.arguments import (
    check_count,
    check_integer,
    check_kind,
    check_staleness,
    deadline_of,
)
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import (
    FragmentKey,
    FragmentLabel,
    SampleFragment,
)
from parllel.errors import ClosedError
from parllel.logging.ledger import Ledger

Order = Literal["oldest", "newest", "random"]
# Longest single wait, since system calls reject very large time-outs.
_MAX_WAIT_S = 3600.0
# Restarted workers have new names. Running workers are far fewer, and an earlier one whose fragments are
# still in transit is more recent than this many others.
MAX_PRODUCERS = 10_000


@dataclass
class _Entry:
    fragment: SampleFragment
    oldest_version: int
    draws: int = 0


class ReplayBuffer(ReplayBufferInterface):
    """Stores fragments in the memory of this process. Thread-safe.

    Args:
        capacity: maximum number of fragments. Producers wait while the buffer is full.
        max_reuse: number of times a fragment is fetched before it is removed.
        order: which fragments are fetched first: the oldest, the newest, or random ones.
        max_staleness: maximum number of versions by which the oldest step of a fragment may lag behind the
            newest weights, on arrival and while it is stored; None for no limit.
        seed: seed for the order "random".

    Attributes:
        ledger: number of fragments by outcome. `added` have arrived; `accepted` were fetched at
            least once, `stale` became too old before that, `lost` were stored when the buffer was
            closed, and `queued` are stored now and have not been fetched.
        duplicates: number of fragments added again, which are not in the ledger.
        version: the highest version passed to `new_version` or `fetch`.

    Raises:
        ValueError: for a capacity or reuse of less than 1, a negative staleness, an unknown order, or the
            order "random" without a seed.
    """

    def __init__(
        self,
        capacity: int,
        *,
        max_reuse: int = 1,
        order: Order = "oldest",
        max_staleness: int | None = None,
        seed: int | np.random.SeedSequence | None = None,
    ) -> None:
        if order not in get_args(Order):
            raise ValueError(
                f"ReplayBuffer: order: expected one of {list(get_args(Order))}, got {order!r}"
            )
        if order == "random" and seed is None:
            raise ValueError("ReplayBuffer: seed: expected one for the order 'random', got None")
        self.capacity = check_count("ReplayBuffer: capacity", capacity)
        self.max_reuse = check_count("ReplayBuffer: max_reuse", max_reuse)
        self.order = order
        self.max_staleness = check_staleness("ReplayBuffer: max_staleness", max_staleness)
        self.ledger = Ledger("added = accepted + stale + lost + queued")
        self.duplicates = 0
        self.version = 0
        self._generator = np.random.default_rng(seed)
        # Producers and trainer wait for the same condition. So all are woken: `notify` might choose
        # one whom the change does not help.
        self._changed = threading.Condition()
        # By number of arrival. Entries that have reached `max_reuse` are removed.
        self._entries: dict[int, _Entry] = {}
        self._arrivals = 0
        self._known = KnownProducers()
        self._closed = False

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments in order, waiting while there is no room. Returns how many were handled.

        The buffer keeps the fragments themselves, not copies.

        Raises:
            ClosedError: if the buffer is closed before the first is handled.
            TypeError: if an item is not a fragment. In this case none is added.
            ValueError: if two workers have the same name. In this case none is added.
        """
        deadline = deadline_of("ReplayBuffer: add: timeout_s", timeout_s)
        for fragment in fragments:
            if not isinstance(fragment, FragmentLabel):
                check_kind("ReplayBuffer: add", fragment, SampleFragment)
        with self._changed:
            # With the lock, because this also registers the producers.
            self._check_names(fragments)
            for done, fragment in enumerate(fragments):
                try:
                    self._check_open("add")
                    # Checked again after each wait: by then it may have been added, or be too old.
                    while not self._take_in(fragment):
                        if not self._wait(deadline, "add"):
                            return done
                except ClosedError:
                    # Stored fragments are acknowledged, or the sender would count them as rejected, too.
                    if done:
                        return done
                    raise
        return len(fragments)

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` different fragments, or none if there are fewer at the time-out.

        The caller owns them: fragments that can be fetched again are copied.

        Raises:
            ValueError: if `n` is less than 1 or more than the capacity.
            ClosedError: if the buffer is closed, even while this method waits.
        """
        fragments = self.borrow(n, timeout_s, version)
        if self.max_reuse == 1:
            return fragments
        # Copied, because PyTorch can write to read-only arrays, and the next fetch would return the changes.
        # What only has a label is never modified here.
        # Without the lock, so workers can add meanwhile: nobody changes a stored fragment.
        return [
            fragment if isinstance(fragment, FragmentLabel) else deepcopy(fragment)
            for fragment in fragments
        ]

    def borrow(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Like `fetch`, but without copying.

        Do not modify the fragments, because they may be fetched again.
        """
        if not 1 <= check_integer("ReplayBuffer: fetch: n", n) <= self.capacity:
            raise ValueError(
                f"ReplayBuffer: fetch: expected 1 to {self.capacity} (capacity) fragments, got {n}"
            )
        deadline = deadline_of("ReplayBuffer: fetch: timeout_s", timeout_s)
        with self._changed:
            self._check_open("fetch")
            # Before looking, so that nothing is returned that is too old for the caller.
            if version is not None:
                self._advance(version)
            while len(self._entries) < n:
                # None rather than fewer, so that no fragment is removed without being used.
                if not self._wait(deadline, "fetch"):
                    return []
            # The lock is held since the entries were counted, so there are still enough.
            return [self._draw(arrival) for arrival in self._choose(n)]

    def prepared(self) -> int:
        """Return the number of fragments that can be fetched now."""
        with self._changed:
            return len(self._entries)

    def needs(self, fragment: SampleFragment | FragmentLabel) -> bool:
        """Return whether `add` would store a fragment, rather than drop it as known or too old.

        Once False, it stays False.
        """
        with self._changed:
            known = self._known.has_arrived(fragment.key)
            return not known and not self._too_old(fragment.oldest_version)

    def new_version(self, version: int) -> None:
        """Set the current version of the weights, and drop fragments that are too old for it.

        Versions never decrease: a lower one has no effect.
        """
        with self._changed:
            self._advance(version)

    def counts(self) -> dict[str, int]:
        """Return the counters of the ledger."""
        return self.ledger.counts()

    def close(self) -> None:
        """Drop all fragments, and wake all waiting threads. Idempotent."""
        with self._changed:
            if not self._closed:
                # Set first, so that threads woken below do not wait again.
                self._closed = True
                lost = self._unused(self._entries.values())
                self.ledger.add(queued=-lost, lost=lost)
                self._entries.clear()
                self._changed.notify_all()

    # ------------------------------------------------------------------ with the lock held

    def _check_names(self, fragments: Sequence[SampleFragment]) -> None:
        for fragment in fragments:
            producer = fragment.key[0]
            # Otherwise the second producer's fragments would be dropped as duplicates of the first one's.
            if not self._known.register_producer(producer, fragment.instance_id):
                raise ValueError(
                    "ReplayBuffer: add: expected the fragments of only one producer named "
                    f"{producer!r}, got fragments of another one; give each RolloutWorker a "
                    "different producer name, and each Rollouts a separate buffer, because their "
                    "workers have the same names"
                )

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise ClosedError(f"ReplayBuffer: {doing}: the buffer is closed")

    def _wait(self, deadline: float, doing: str) -> bool:
        """Wait for a change. Returns False on time-out."""
        left_s = deadline - monotonic()
        # Checked before the wait, as even a wait of 0 seconds releases the lock.
        if left_s <= 0:
            return False
        self._changed.wait(min(left_s, _MAX_WAIT_S))
        self._check_open(doing)
        return True

    def _take_in(self, fragment: SampleFragment) -> bool:
        """Store, drop or recognize a fragment. Returns False if there is no room for it."""
        key = fragment.key
        if self._known.has_arrived(key):
            self.duplicates += 1
            return True
        oldest_version = fragment.oldest_version
        stale = self._too_old(oldest_version)
        # Checked before the room, because a stale fragment needs none.
        if not stale and len(self._entries) >= self.capacity:
            return False
        # A stale one, too: added again after a lost acknowledgement, it is a duplicate.
        self._known.note(key)
        if stale:
            self.ledger.add("added", "stale")
            return True
        # Numbers only grow, so the dict stays in the order of arrival, whatever is removed.
        self._arrivals += 1
        self._entries[self._arrivals] = _Entry(fragment, oldest_version)
        self.ledger.add("added", "queued")
        self._changed.notify_all()
        return True

    def _too_old(self, oldest_version: int) -> bool:
        limit = self.max_staleness
        return limit is not None and self.version - oldest_version > limit

    def _advance(self, version: int) -> None:
        if check_integer("ReplayBuffer: version", version) <= self.version:
            return
        self.version = version
        old = [at for at, entry in self._entries.items() if self._too_old(entry.oldest_version)]
        if old:
            stale = self._unused([self._entries.pop(arrival) for arrival in old])
            self.ledger.add(queued=-stale, stale=stale)
            self._changed.notify_all()  # there is room

    def _choose(self, n: int) -> list[int]:
        arrivals = list(self._entries)
        if self.order == "oldest":
            return arrivals[:n]
        if self.order == "newest":
            return arrivals[: -n - 1 : -1]
        drawn = self._generator.choice(len(arrivals), n, replace=False)
        return [arrivals[i] for i in drawn.tolist()]

    def _draw(self, arrival: int) -> SampleFragment:
        entry = self._entries[arrival]
        # Counted once, however often it is fetched, so that the ledger balances.
        if entry.draws == 0:
            self.ledger.add("accepted", queued=-1)
        entry.draws += 1
        if entry.draws == self.max_reuse:
            del self._entries[arrival]
            self._changed.notify_all()  # there is room
        return entry.fragment

    @staticmethod
    def _unused(entries: Iterable[_Entry]) -> int:
        return sum(entry.draws == 0 for entry in entries)


@dataclass
class _Producer:
    instance_id: str
    # The last fragment of each environment as (epoch, sequence). Fragments arrive in order, so it covers all
    # earlier ones; a set of all keys would grow with the run.
    last: dict[int, tuple[int, int]] = field(default_factory=dict)


class KnownProducers:
    """Distinguishes new fragments from repeated ones, and producers of the same name.

    Only the most recent producers are remembered.
    """

    def __init__(self) -> None:
        # The most recent producer is the last key.
        # Without a lock, because ReplayBuffer holds its own in every call.
        self._producers: dict[str, _Producer] = {}

    def register_producer(self, name: str, instance_id: str) -> bool:
        """Register a producer. Returns False if another one has its name."""
        # Taken out and inserted again, which makes it the most recent one.
        producer = self._producers.pop(name, None) or _Producer(instance_id)
        self._producers[name] = producer
        if len(self._producers) > MAX_PRODUCERS:
            del self._producers[next(iter(self._producers))]
        return producer.instance_id == instance_id

    def has_arrived(self, key: FragmentKey) -> bool:
        """Check whether a fragment, or a later one of its environment, has arrived."""
        name, environment, epoch, sequence = key
        producer = self._producers.get(name)
        return producer is not None and (epoch, sequence) <= producer.last.get(
            environment, (-1, -1)
        )

    def note(self, key: FragmentKey) -> None:
        """Record the arrival of a fragment."""
        name, environment, epoch, sequence = key
        # The producer may have been forgotten while the fragment waited for room.
        if (producer := self._producers.get(name)) is not None:
            producer.last[environment] = (epoch, sequence)
