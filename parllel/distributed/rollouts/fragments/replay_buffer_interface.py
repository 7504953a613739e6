"""The interface of storages for fragments, local or remote."""

# senders' threads -- add -->  storage  <-- fetch, borrow, prepared, new_version -- trainer
# They call at the same time, so the storage does the locking.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.types import Closeable


class ReplayBufferInterface(Closeable, ABC):
    """A storage to which workers add fragments, and from which the trainer fetches them.

    The fragments of an environment are added in order, by one sender at a time, which repeats those that were
    not acknowledged: adding is idempotent. A restarted producer needs a new name, because its fragments are
    numbered from 0 again.

    Attributes:
        add_wait_s: time-out that senders pass to `add`. It bounds how long closing a sender takes, and how
            often a blocked sender retries, which costs a message if the storage is remote.
    """

    # FragmentSender.close relies on `add` to return soon after this time.
    add_wait_s = 0.1

    @abstractmethod
    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments in order, waiting while there is no room. Returns how many were handled.

        A fragment is handled if it was stored, was already known, or was dropped as too old. If fewer are
        handled than were given, on time-out or because the storage was closed, add the rest again.

        Raises:
            ClosedError: if the storage is closed before the first is handled.
        """

    @abstractmethod
    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` different fragments, or none if there are fewer at the time-out.

        version: current version of the weights, as for `new_version`.

        Raises:
            ValueError: if `n` exceeds what the storage can hold.
            ClosedError: if the storage is closed.
        """

    def borrow(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Like `fetch`, for callers that do not modify the fragments, so copies are not needed."""
        return self.fetch(n, timeout_s, version)

    @abstractmethod
    def prepared(self) -> int:
        """Return the number of fragments that can be fetched now."""

    @abstractmethod
    def new_version(self, version: int) -> None:
        """Set the current version of the weights, and drop fragments that are too old for it.

        Versions never decrease: a lower one has no effect.
        """

    def counts(self) -> dict[str, int]:
        """Return counts of fragments by outcome, for messages and logs. Empty by default.

        `stale` is the number of fragments dropped because they were too old.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Drop all fragments, and wake all waiting calls. Idempotent."""
