"""Fragments between workers and a trainer in one process.

    sender threads -- add --> entries (at most `capacity`) -- fetch --> trainer
                                   ^
                 new_version (drops what is too old)

Everything happens under one lock. Whoever changes the entries wakes all that wait, and these look again: a
producer for room, the trainer for enough fragments. Nothing is dropped to make room.
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
    PackedFragment,
    SampleFragment,
)
from parllel.errors import ClosedError
from parllel.logging.ledger import Ledger

Order = Literal["oldest", "newest", "random"]
# The longest single wait: the system's calls do not take any number of seconds.
_MAX_WAIT_S = 3600.0
# A worker that is started again has a new name. Those that run are far fewer, and an earlier one whose
# fragments are still on their way was heard of more lately than this many others.
MAX_PRODUCERS = 10_000


@dataclass
class _Entry:
    fragment: SampleFragment
    oldest_version: int
    draws: int = 0


class ReplayBuffer(ReplayBufferInterface):
    """Hold fragments in the memory of this process; any number of threads may use it.

    Args:
        capacity: most fragments. Producers wait while there are as many.
        max_reuse: how often a fragment is fetched before it leaves.
        order: which fragments are fetched: those that came first, those that came last, or any.
        max_staleness: by how many versions the oldest step of a fragment may be older than the newest
            weights, when it comes and as long as it stays; None sets no limit.
        seed: of the order "random".

    Attributes:
        ledger: where all fragments went. `added` are those that came; `accepted` were fetched at least once,
            `stale` were too old before that, `lost` were there when the buffer was closed, and `queued` are
            there now and have not been fetched.
        duplicates: how many were added again, which no counter of the ledger includes.
        version: the highest version that `new_version` or `fetch` was given.

    Raises:
        ValueError: for a capacity or a reuse of less than one, a staleness below zero, an unknown order, or
            the order "random" without a seed.
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
        self._changed = threading.Condition()
        # By arrival. Those that have been fetched as often as they may be are not here any more.
        self._entries: dict[int, _Entry] = {}
        self._arrivals = 0
        self._known = KnownProducers()
        self._closed = False

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments in order, waiting while there is no room; return how many are done with.

        The buffer keeps the fragments themselves, not copies.

        Raises:
            ClosedError: if the buffer is closed, or has been while this waited for room for the first.
            TypeError: for anything else than fragments; none is added then.
            ValueError: if two workers have the same name; none is added then.
        """
        deadline = deadline_of("ReplayBuffer: add: timeout_s", timeout_s)
        for fragment in fragments:
            if not isinstance(fragment, PackedFragment):
                check_kind("ReplayBuffer: add", fragment, SampleFragment)
        with self._changed:
            self._check_names(fragments)
            for done, fragment in enumerate(fragments):
                try:
                    self._check_open("add")
                    # Asked again after each wait: by then it may have come from elsewhere, or be too old.
                    while not self._take_in(fragment):
                        if not self._wait(deadline, "add"):
                            return done
                except ClosedError:
                    # What was taken in is acknowledged, or the sender would count it as well, as rejected.
                    if done:
                        return done
                    raise
        return len(fragments)

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` different fragments, or none if there are not as many before the time is up.

        They are the caller's: copies of those that can be fetched again.

        Raises:
            ValueError: if `n` is less than one or more than the capacity.
            ClosedError: if the buffer is closed, or has been while this waited.
        """
        fragments = self.borrow(n, timeout_s, version)
        if self.max_reuse == 1:
            return fragments
        # PyTorch writes through to read-only arrays: what it changed would be fetched next. What is packed
        # consists of bytes, which nobody can change.
        return [one if isinstance(one, PackedFragment) else deepcopy(one) for one in fragments]

    def borrow(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return what `fetch` does without a copy: what the caller changes may be fetched next."""
        if not 1 <= check_integer("ReplayBuffer: fetch: n", n) <= self.capacity:
            raise ValueError(
                f"ReplayBuffer: fetch: expected 1 to {self.capacity} (capacity) fragments, got {n}"
            )
        deadline = deadline_of("ReplayBuffer: fetch: timeout_s", timeout_s)
        with self._changed:
            self._check_open("fetch")
            if version is not None:
                self._advance(version)
            while len(self._entries) < n:
                # None rather than fewer, so that no fragment is taken out and then not used.
                if not self._wait(deadline, "fetch"):
                    return []
            return [self._draw(arrival) for arrival in self._choose(n)]

    def prepared(self) -> int:
        """Return how many fragments can be fetched now."""
        with self._changed:
            return len(self._entries)

    def new_version(self, version: int) -> None:
        """Say which version of the weights there is now; what has become too old by it is dropped.

        Versions never go back: one below the highest so far changes nothing.
        """
        with self._changed:
            self._advance(version)

    def counts(self) -> dict[str, int]:
        """Return the counters of the ledger."""
        return self.ledger.counts()

    def close(self) -> None:
        """Drop all fragments and wake all who wait; may be called twice."""
        with self._changed:
            if not self._closed:
                # First: who is woken below must not go on waiting.
                self._closed = True
                lost = self._unused(self._entries.values())
                self.ledger.add(queued=-lost, lost=lost)
                self._entries.clear()
                self._changed.notify_all()

    # ------------------------------------------------------------------ with the lock held

    def _check_names(self, fragments: Sequence[SampleFragment]) -> None:
        for fragment in fragments:
            producer = fragment.key[0]
            # The fragments of a second one would be taken for the first one's, added again.
            if not self._known.register_producer(producer, fragment.instance_id):
                raise ValueError(
                    f"ReplayBuffer: add: expected fragments of one producer named {producer!r}, got those of "
                    "another, which has the same numbers; give each RolloutWorker a producer name of its own "
                    "and, as their workers have the same names, each Rollouts a buffer of its own"
                )

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise ClosedError(f"ReplayBuffer: {doing}: the buffer is closed")

    def _wait(self, deadline: float, doing: str) -> bool:
        """Wait for a change; return False once the time is up."""
        left_s = deadline - monotonic()
        # Looked at before the wait, as one of zero seconds would still let others have the lock.
        if left_s <= 0:
            return False
        self._changed.wait(min(left_s, _MAX_WAIT_S))
        self._check_open(doing)
        return True

    def _take_in(self, fragment: SampleFragment) -> bool:
        """Be done with a fragment, unless there is no room for it."""
        key = fragment.key
        if self._known.has_arrived(key):
            self.duplicates += 1
            return True
        oldest_version = fragment.oldest_version
        stale = self._too_old(oldest_version)
        # Before the question of room: what is too old waits for none.
        if not stale and len(self._entries) >= self.capacity:
            return False
        self._known.note(key)
        if stale:
            self.ledger.add("added", "stale")
            return True
        # Arrivals only ever grow, so the order of the dict is that of time, whatever has left since.
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
        # Once, however often it is fetched, or the sums of the ledger could not agree.
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
    # The last fragment of each environment as (epoch, sequence): all before it came earlier. Memory of all
    # keys would grow with the run.
    last: dict[int, tuple[int, int]] = field(default_factory=dict)


class KnownProducers:
    """Tell new fragments from those that are added again, and producers of one name apart.

    Only the producers that were heard of last are remembered.
    """

    def __init__(self) -> None:
        # The one that was heard of last comes last.
        self._producers: dict[str, _Producer] = {}

    def register_producer(self, name: str, instance_id: str) -> bool:
        """Remember a producer; return False if another one has its name."""
        producer = self._producers.pop(name, None) or _Producer(instance_id)
        self._producers[name] = producer
        if len(self._producers) > MAX_PRODUCERS:
            del self._producers[next(iter(self._producers))]
        return producer.instance_id == instance_id

    def has_arrived(self, key: FragmentKey) -> bool:
        """Return whether a fragment, or a later one of its environment, was noted."""
        name, environment, epoch, sequence = key
        producer = self._producers.get(name)
        return producer is not None and (epoch, sequence) <= producer.last.get(
            environment, (-1, -1)
        )

    def note(self, key: FragmentKey) -> None:
        """Remember that a fragment has come."""
        name, environment, epoch, sequence = key
        # It may be unknown again, if it waited for room that long.
        if (producer := self._producers.get(name)) is not None:
            producer.last[environment] = (epoch, sequence)
