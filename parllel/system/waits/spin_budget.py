"""How long to spin before sleeping, from how spins went; `compiled.py` has the same in numba.

    wait   next_ns ---> how long to spin     record <--- how long it spun, and whether the word changed

Nothing of this is shared: each process keeps the usual wait of each line for itself.

Twice the usual wait and at least a quarter of the limit, if twice is within the limit, else not at all. So a
wait that is longer than usual, as between two batches, still ends without a sleep. A spin that ended with a
change moves the average by 1/8 of how long it took; one that did not, because the wait is long or because the
writer waits for this very core, by 1/4 of the limit. Waits that only slept say nothing, as most of such a
wait may be the time to be woken: so one in 32 of them spins to the limit after all, and if that ends with a
change, it is the new average.
"""

from __future__ import annotations

SUCCESS_SHIFT, FAILURE_SHIFT = 3, 2  # by 1/8 and by 1/4
PROBE_EVERY = 32
LEAST_SHIFT = 2  # a quarter


class SpinBudget:
    """The usual wait of one line, in nanoseconds.

    Args:
        limit_ns: the longest spin.
    """

    __slots__ = ("_limit_ns", "_skipped", "usual_ns")

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._skipped = 0
        self.usual_ns = limit_ns // 2

    def next_ns(self) -> int:
        """Return how long to spin in this wait."""
        # Twice, so that most waits that are near the usual one end without a sleep.
        twice = 2 * self.usual_ns
        if twice <= self._limit_ns:
            self._skipped = 0
            # At least a quarter: after many short waits one that is longer would be slept through.
            return max(twice, self._limit_ns >> LEAST_SHIFT)
        self._skipped += 1
        # A sleep says nothing about the wait, so look now and then whether it has become short again.
        return 0 if self._skipped % PROBE_EVERY else self._limit_ns

    def record(self, spun_ns: int, changed: bool) -> None:
        """Take in how long a spin was, and whether the word changed meanwhile."""
        if not changed:
            self.usual_ns += (self._limit_ns - self.usual_ns) >> FAILURE_SHIFT
        elif 2 * self.usual_ns > self._limit_ns:
            # The probe: the waits have become short, and the average of what was before is out of date.
            self.usual_ns = min(spun_ns, self._limit_ns // 2)
        else:
            self.usual_ns += (spun_ns - self.usual_ns) >> SUCCESS_SHIFT
