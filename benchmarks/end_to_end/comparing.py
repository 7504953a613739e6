"""Comparison of five trainings per side: relative speed, and whether learning curves agree."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

BATCHES_PER_POINT = 5


class Point(NamedTuple):
    """Mean return of the episodes that ended in some batches, and the steps after the last of them."""

    steps: int
    mean_return: float


def learning_curve(
    returns: Sequence[Sequence[float]], batch_size: int, batches_per_point: int = BATCHES_PER_POINT
) -> list[Point]:
    """Return a point for each `batches_per_point` batches; fewer at the end make a last point.

    Where no episode ended, the point before is repeated; before the first episode there is no point.
    """
    points: list[Point] = []
    for start in range(0, len(returns), batches_per_point):
        batches = returns[start : start + batches_per_point]
        episodes = [value for batch in batches for value in batch]
        if episodes or points:
            mean = statistics.fmean(episodes) if episodes else points[-1].mean_return
            points.append(Point((start + len(batches)) * batch_size, mean))
    return points


def area(curve: Sequence[Point]) -> float:
    """Return the area under a curve as its mean height; points are equally far apart."""
    return statistics.fmean(point.mean_return for point in curve)


def permutation_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the share of all regroupings whose means lie at least as far apart (Fisher 1935).

    Exact and two-sided: with five and five values there are 252 regroupings, the least share is 2/252.
    """
    pooled = [*first, *second]
    n, total = len(first), math.fsum(pooled)
    observed = abs(statistics.fmean(first) - statistics.fmean(second))
    as_far = count = 0
    for chosen in itertools.combinations(pooled, n):
        part = math.fsum(chosen)
        apart = abs(part / n - (total - part) / len(second))
        as_far += apart >= observed - 1e-9 * max(1.0, observed)
        count += 1
    return as_far / count


def least_p_value(n: int, m: int) -> float:
    """Return the least share that `permutation_p_value` can find among groups of n and m values.

    Above 0.05, as with three values each, no difference is large enough for an interval of 95 %.
    """
    # Groups of the same size are as far apart when they are swapped.
    return (2 if n == m else 1) / math.comb(n + m, n)


def difference_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> tuple[float, float]:
    """Return an interval for how far the values of `first` are above those of `second`.

    It holds every shift that the exact permutation test does not reject once it is taken from `first`.
    """
    middle = statistics.fmean(first) - statistics.fmean(second)
    spread = max([*first, *second]) - min([*first, *second])

    def end(sign: int) -> float:
        inside, outside = 0.0, 2 * spread + 1e-9
        while outside - inside > 1e-4 * (spread + 1e-9):
            apart = (inside + outside) / 2
            shifted = [value - middle - sign * apart for value in first]
            if permutation_p_value(shifted, second) > 1 - confidence:
                inside = apart
            else:
                outside = apart
        return middle + sign * inside

    return end(-1), end(1)


class Likeness(NamedTuple):
    """Whether our curves are those of a peer.

    Attributes:
        p_value: of the difference of the areas under the curves; above 0.05 they count as alike.
        ours, theirs: the mean areas.
        inside: share of points at which our mean lies between the peer's lowest and highest seed.
    """

    p_value: float
    ours: float
    theirs: float
    inside: float

    @property
    def verdict(self) -> str:
        """Return "alike", "higher" or "lower"."""
        if self.p_value > 0.05:
            return "alike"
        return "higher" if self.ours > self.theirs else "lower"


def likeness(ours: Sequence[Sequence[Point]], theirs: Sequence[Sequence[Point]]) -> Likeness:
    """Compare the curves of two sides, one per seed; all have their points at the same steps."""
    areas = [[area(curve) for curve in curves] for curves in (ours, theirs)]
    inside = []
    for mine, others in zip(zip(*ours, strict=False), zip(*theirs, strict=False), strict=False):
        mean = statistics.fmean(point.mean_return for point in mine)
        heights = [point.mean_return for point in others]
        inside.append(min(heights) <= mean <= max(heights))
    return Likeness(
        permutation_p_value(*areas),
        statistics.fmean(areas[0]),
        statistics.fmean(areas[1]),
        sum(inside) / len(inside),
    )
