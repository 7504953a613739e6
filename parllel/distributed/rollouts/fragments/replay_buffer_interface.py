"""What workers and the trainer see of a storage of fragments, wherever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.types import Closeable


class ReplayBufferInterface(Closeable, ABC):
    """A storage that workers add fragments to and the trainer fetches them from.

    The fragments of one environment are added in order, by one sender at a time, which repeats what was not
    acknowledged: adding a fragment twice is adding it once. A producer that is started again needs a new
    name, since its fragments are numbered from 0 again.

    Attributes:
        add_wait_s: how long a sender lets `add` wait at a time. One that is closed may go on for so long; one
            that is blocked asks again as often, which costs a message if the storage is elsewhere.
    """

    add_wait_s = 0.1

    @abstractmethod
    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments in order, waiting while there is no room; return how many are done with.

        These are stored, or were known already, or were too old and have been dropped. If it is fewer than
        were given, the time was up, or the storage has been closed; add the others again.

        Raises:
            ClosedError: if the storage is closed, or has been before it was done with the first.
        """

    @abstractmethod
    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` different fragments, or none if there are not as many before the time is up.

        version: of the weights that are to learn from them, as for `new_version`.

        Raises:
            ValueError: if the storage can never hold as many.
            ClosedError: as `add`.
        """

    def borrow(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return what `fetch` does, for readers that change nothing: so nothing need be copied."""
        return self.fetch(n, timeout_s, version)

    @abstractmethod
    def prepared(self) -> int:
        """Return how many fragments can be fetched now."""

    @abstractmethod
    def new_version(self, version: int) -> None:
        """Say which version of the weights there is now; what has become too old by it is dropped.

        Versions never go back: one below the highest so far changes nothing.
        """

    def counts(self) -> dict[str, int]:
        """Return how many fragments were added and where they went, by name, for messages and logs.

        `stale` are those that were dropped because they were too old. The default says nothing.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Drop all fragments and wake all who wait; may be called twice."""
