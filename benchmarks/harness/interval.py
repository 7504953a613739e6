"""Median and confidence interval of a few measurements, and the rule for a goal being met.

A goal is met if the worse bound of the interval meets it: the lower bound if large values are good, the upper
bound if small ones are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
ENOUGH = 6  # fewer values have no interval for their median at 95 %


class Estimate(NamedTuple):
    """A median with the ends of its interval."""

    median: float
    low: float
    high: float

    def reaches(self, goal: float, *, small_is_good: bool = False) -> bool:
        """Return whether the far bound, the end of the interval on the bad side, reaches a goal."""
        return self.high <= goal if small_is_good else self.low >= goal

    def inverse(self) -> Estimate:
        """Return the same of the reciprocals: of times where this is of speeds."""
        return Estimate(1 / self.median, 1 / self.high, 1 / self.low)


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the median and its interval from order statistics, which assume no distribution.

    The interval runs from the k-th least to the k-th greatest value, with the largest k for which fewer
    than k of n fair coins show heads with probability (1 - confidence) / 2 at most. Too few values for
    that give their least and greatest, which say less.

    Raises:
        ValueError: if there are no values.
    """
    if not values:
        raise ValueError("values: expected at least one")
    ordered = sorted(values)
    k = max(1, _rank(len(ordered), (1 - confidence) / 2))
    return Estimate(statistics.median(ordered), ordered[k - 1], ordered[-k])


def _rank(n: int, tail: float) -> int:
    below, k = 0.0, 0
    while True:
        below += math.comb(n, k) / 2**n
        if below > tail:
            return k
        k += 1
