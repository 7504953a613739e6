"""Adaptive spin time before sleeping, from earlier spins; `compiled.py` has the same in numba.

    wait   next_ns ---> how long to spin     record <--- how long it spun, and whether the word changed

Nothing is shared: each process keeps the usual wait of each line in private memory.

The spin time is twice the usual wait, but at least a quarter of the limit; if twice the usual wait exceeds
the limit, there is no spin. So a wait that is longer than usual, as between two batches, still ends without a
sleep. A spin that ended with a change moves the average towards its duration by 1/8; one that did not,
because the wait is long or the writer waits for this very core, moves it towards the limit by 1/4. Waits that
only slept are not used, as most of their time may be the wakeup. Instead one in 32 of them spins up to the
limit; if that ends with a change, its duration is the new average.
"""

from __future__ import annotations

SUCCESS_SHIFT, FAILURE_SHIFT = 3, 2  # by 1/8 and by 1/4
PROBE_EVERY = 32
LEAST_SHIFT = 2  # a quarter


class SpinBudget:
    """The usual wait of one line, in nanoseconds.

    Args:
        limit_ns: longest spin.
    """

    __slots__ = ("_limit_ns", "_skipped", "usual_ns")

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._skipped = 0
        self.usual_ns = limit_ns // 2

    def next_ns(self) -> int:
        """Return how long to spin in the next wait."""
        # Twice, so that most waits near the usual one end without a sleep.
        twice = 2 * self.usual_ns
        if twice <= self._limit_ns:
            self._skipped = 0
            # At least a quarter, so that a longer wait after many short ones does not sleep.
            return max(twice, self._limit_ns >> LEAST_SHIFT)
        self._skipped += 1
        # Sleeps do not show the length of the wait, so probe now and then whether it is short again.
        return 0 if self._skipped % PROBE_EVERY else self._limit_ns

    def record(self, spun_ns: int, changed: bool) -> None:
        """Record how long a spin was, and whether the word changed."""
        if not changed:
            self.usual_ns += (self._limit_ns - self.usual_ns) >> FAILURE_SHIFT
        elif 2 * self.usual_ns > self._limit_ns:
            # A successful probe: waits have become short, and the old average is obsolete.
            self.usual_ns = min(spun_ns, self._limit_ns // 2)
        else:
            self.usual_ns += (spun_ns - self.usual_ns) >> SUCCESS_SHIFT
