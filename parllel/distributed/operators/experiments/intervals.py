"""Means with confidence intervals: by sign flips, and for proportions by Wilson's score.

Sign flips (Hartigan 1969, "Using subsample values as typical values") ask of a candidate mean m: if values
were as likely above m as below it by the same amount, how often would they be so far on one side of it? The
interval contains each m for which that is not rare. It assumes no normal distribution, and is valid for few
values.

    values -> blocks (one per seed) -> a group of 2**bits sign flips -> the mean of each flipped subset
    the interval is from the k-th smallest of these means to the k-th largest
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
_Z = 1.959964  # quantile of the normal distribution for LEVEL
_MIN_BITS = 13  # all subsets of up to 13 blocks; of more blocks, a group of 8,192 of them
_ROUNDING = 1e-12  # relative to the largest value


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean over episodes, with its confidence interval.

    Attributes:
        mean: None without values.
        low, high: bounds of the interval, at 95 % unless another level is given. None if the values
            do not bound it, because there are fewer than six seeds or all values are equal.
        n: the number of values.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        if self.low is None or self.high is None:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def mean_with_interval(
    values: Sequence[float], *, seeds: Sequence[Hashable] | None = None, level: float = LEVEL
) -> ConfidenceInterval:
    """Return the mean with its sign-flip interval.

    The interval is exact for values that are distributed symmetrically about their mean. For returns with a
    long tail it is too narrow, like every interval that assumes nothing about the tail: for 10 draws of an
    exponential distribution it contains the mean in about 90 % of cases, as Student's t does.

    Args:
        values: finite numbers.
        seeds: seed of each value. Values with the same seed are not independent and count as one.
            Default: all seeds are different.
        level: probability that the interval contains the mean.
    """
    n = len(values)
    if n == 0:
        return ConfidenceInterval(None, None, None, 0)
    held = np.asarray(values, np.float64)
    if np.all(held == held[0]):
        # Exact, as sums of equal numbers are rounded. An interval of zero width would claim certainty.
        return ConfidenceInterval(float(held[0]), None, None, n)
    low, high = sign_flip_interval(values, seeds=seeds, level=level) or (None, None)
    return ConfidenceInterval(float(held.mean()), low, high, n)


def sign_flip_interval(
    values: Sequence[float], *, seeds: Sequence[Hashable] | None = None, level: float = LEVEL
) -> tuple[float, float] | None:
    """Return a confidence interval for the mean, based on the sign-flip test.

    The interval excludes zero if and only if the test rejects a mean of zero. The differences between two
    interchangeable players are distributed symmetrically about zero, whatever their returns. For such
    differences, the test errs with a probability of at most 1 - level. The arguments are the same as for
    `mean_with_interval`.

    Returns:
        The ends of the interval, or None if there are fewer seeds than `least_seeds(level)`.
    """
    blocks = _numbers(range(len(values)) if seeds is None else seeds)
    n_blocks = max(blocks, default=-1) + 1
    tail = (1 - level) / 2
    # At least 8 subsets in each tail, so that rounding down costs little.
    n_bits = min(n_blocks, max(_MIN_BITS, 3 + math.ceil(-math.log2(tail))))
    rank = math.floor(tail * 2**n_bits)
    if rank == 0:
        return None
    means = _subset_means(np.asarray(values, np.float64), _codes(n_blocks, n_bits)[blocks], n_bits)
    ends = np.partition(means, [rank - 1, len(means) - rank])
    return float(ends[rank - 1]), float(ends[len(means) - rank])


def least_seeds(level: float = LEVEL) -> int:
    """Return the minimum number of seeds for an interval at this level: 6 at 95 %."""
    return math.ceil(-math.log2((1 - level) / 2))


def proportion_with_interval(
    successes: Sequence[bool], *, seeds: Sequence[Hashable] | None = None
) -> ConfidenceInterval:
    """Return a proportion with Wilson's score interval (Wilson 1927), from 0 to 1.

    seeds: seed of each value. Values with the same seed count as one for the interval. Default: all
        seeds are different.
    """
    count = len(successes)
    if count == 0:
        return ConfidenceInterval(None, None, None, 0)
    n = count if seeds is None else len(set(seeds))
    p = sum(map(bool, successes)) / count
    centre = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    # Clipped, as rounding may leave the range by a bit.
    return ConfidenceInterval(p, max(0.0, centre - half), min(1.0, centre + half), count)


def _numbers(seeds: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(seed, len(numbers)) for seed in seeds]


@lru_cache(maxsize=64)
def _codes(n_blocks: int, n_bits: int) -> NDArray[np.int64]:
    """Return for each block the generators of the group that flip it, as bits.

    The group has 2**n_bits members. For up to n_bits blocks it contains all sign flips; for more, it is a
    fixed subgroup, for which the test is exact too.
    """
    n_more = n_blocks - n_bits
    # Raw words, which are the same in all versions of NumPy.
    more = np.random.PCG64(0).random_raw(n_more) % (2**n_bits - 1) + 1
    return np.concatenate([1 << np.arange(n_bits), more.astype(np.int64)])


def _subset_means(
    values: NDArray[np.float64], codes: NDArray[np.int64], n_bits: int
) -> NDArray[np.float64]:
    """Return the mean of the values flipped by each member of the group, except the one that flips none.

    values, codes: [n].  returns [2**n_bits - 1].
    """
    sums, counts = _walsh(
        np.stack([np.bincount(codes, of, 1 << n_bits) for of in (values, np.ones_like(values))])
    )
    # A transform holds the sum with flipped signs; it differs from the plain sum by twice the flipped part.
    means: NDArray[np.float64] = (sums[0] - sums[1:]) / (counts[0] - counts[1:])
    # A subset whose sum is zero up to rounding is on neither side of zero.
    means[np.abs(means) < _ROUNDING * np.abs(values).max()] = 0.0
    return means


def _walsh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Walsh-Hadamard transform of each row.

    values: [rows, 2**bits].  returns the same shape: for each u, the sum of row[c] over all c, negated where
    u & c has an odd number of bits.
    """
    rows, n = values.shape
    half = 1
    while half < n:
        pairs = values.reshape(rows, -1, 2, half)
        left, right = pairs[:, :, 0], pairs[:, :, 1]
        values = np.stack([left + right, left - right], axis=2).reshape(rows, n)
        half *= 2
    return values
