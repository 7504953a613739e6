"""Limit on restarts of a process, with pauses in between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from parllel.errors import RestartsUsedUpError

_REASONS, _REASON_CHARACTERS = 3, 1000


class RestartBudget:
    """Limited number of restarts per time, with exponentially growing pauses.

    A restart counts for `within_s`. The pause before a restart is `first_pause_s`, doubled for each one that
    still counts, so pauses are short again after `within_s` without restarts.

    Args:
        most: maximum number of restarts that count at a time; 0 allows none.
        within_s: seconds for which a restart counts.
        first_pause_s, longest_pause_s: shortest and longest pause before a restart, in seconds.
        clock: monotonic clock in seconds.

    Raises:
        ValueError: if `most` is negative, `within_s` is not above 0, or the pauses are not in order.
    """

    def __init__(
        self,
        most: int,
        within_s: float,
        first_pause_s: float = 0.1,
        longest_pause_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if most < 0:
            raise ValueError(f"most: expected at least 0, got {most}")
        if not within_s > 0:
            raise ValueError(f"within_s: expected more than 0, got {within_s}")
        if not 0 <= first_pause_s <= longest_pause_s:
            raise ValueError(
                "first_pause_s: expected from 0 to longest_pause_s "
                f"({longest_pause_s}), got {first_pause_s}"
            )
        self.most, self.within_s = most, within_s
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._clock = clock
        # Not locked: the thread that restarts the process is the only one to use its budget.
        self._times: deque[float] = deque()  # of restarts that count, the oldest first
        self._reasons: deque[str] = deque(maxlen=_REASONS)

    @property
    def left(self) -> int:
        """Number of restarts that are allowed now."""
        return self.most - self._count(self._clock())

    def restart(self, reason: object) -> float:
        """Use one restart; return the seconds to wait before it.

        reason: why it is needed, such as the error that reported the death.

        Raises:
            RestartsUsedUpError: if none is left; names the last reasons.
        """
        now = self._clock()
        # First, so that the error also names the last death.
        self._reasons.append(str(reason)[:_REASON_CHARACTERS])
        count = self._count(now)
        if count >= self.most:
            reasons = "\n  ".join(self._reasons)
            raise RestartsUsedUpError(
                f"{self.most} restarts within {self.within_s:g} s are used up; raise the budget, or remove "
                f"the cause. The last reasons:\n  {reasons}"
            )
        # Counted from the decision, before the pause, so that pauses count towards `within_s`.
        self._times.append(now)
        # The exponent is limited, as a power of some thousands overflows a float.
        return min(self._first_pause_s * 2.0 ** min(count, 64), self._longest_pause_s)

    def _count(self, now: float) -> int:
        while self._times and now - self._times[0] >= self.within_s:
            self._times.popleft()
        return len(self._times)
