"""Intervals against scipy, and how often they claim a difference between equal players, by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from parllel.distributed.operators.experiments.intervals import (
    ConfidenceInterval,
    least_seeds,
    mean_with_interval,
    proportion_with_interval,
    sign_flip_interval,
)

NS = (2, 3, 5, 6, 8, 10, 15, 50)
RETURNS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(size=shape),
    "success 0.05": lambda rng, shape: 1.0 * (rng.random(shape) < 0.05),
    "success 0.2": lambda rng, shape: 1.0 * (rng.random(shape) < 0.2),
    "success 0.5": lambda rng, shape: 1.0 * (rng.random(shape) < 0.5),
}


def at_most(rate, n):
    """Return the largest share of `n` draws that chance explains, in all but one of 10,000 cases."""
    return rate + 3.72 * np.sqrt(rate * (1 - rate) / n)


def claims(differences, **arguments):
    ends = sign_flip_interval(list(differences), **arguments)
    return ends is not None and (ends[0] > 0 or ends[1] < 0)


@pytest.mark.parametrize("name", RETURNS)
@pytest.mark.few(3)
def test_equal_players_are_seldom_called_different(name):
    rng = np.random.default_rng(7)
    n_draws = 600
    for n in NS:
        # Players of a pair have a seed in common, which makes episodes long or short for both.
        seed = rng.normal(size=(n_draws, 1, n))
        first, second = (RETURNS[name](rng, (n_draws, 2, n)) + seed).swapaxes(0, 1)
        wrong = np.mean([claims(one) for one in first - second])
        assert wrong <= at_most(0.05, n_draws), n
        if n < 6:
            assert wrong == 0, n
        elif name == "normal":
            # It is no use either if nothing is ever claimed.
            assert wrong >= 0.01, n


@pytest.mark.parametrize("n", [7, 15, 40])
@pytest.mark.few(1)
def test_a_seed_played_again_is_no_further_evidence(n):
    rng = np.random.default_rng(n)
    # What follows from the seed alone gains the same each time: four episodes of a seed are one.
    seeds = np.repeat(np.arange(n), 4)
    draws = rng.normal(size=(600, n)).repeat(4, axis=1)
    assert np.mean([claims(one) for one in draws]) > 0.2
    assert np.mean([claims(one, seeds=list(seeds)) for one in draws]) <= at_most(0.05, 600)
    assert sign_flip_interval(list(draws[0]), seeds=list(seeds)) == pytest.approx(
        sign_flip_interval(list(draws[0, ::4]))
    )
    assert not claims([1.0] * 20, seeds=[3] * 20)


def test_real_differences_are_found():
    rng = np.random.default_rng(3)
    for n, power in ((10, 0.7), (30, 0.99)):
        found = [claims(1.0 + rng.normal(size=n)) for _ in range(300)]
        assert np.mean(found) > power
    # As often as by Student's t, whose power at 0.5 standard deviations and n=30 is 0.754.
    found = np.mean([claims(0.5 + rng.normal(size=30)) for _ in range(600)])
    assert 0.68 < found < 0.82


@pytest.mark.parametrize(
    ("name", "mean", "n", "expected"),
    [("normal", 0.0, 10, 0.95), ("normal", 0.0, 30, 0.95), ("exponential", 1.0, 10, 0.90)],
)
def test_intervals_hold_the_mean_as_often_as_documented(name, mean, n, expected):
    draws = RETURNS[name](np.random.default_rng(n), (1000, n))
    ends = np.array([sign_flip_interval(list(one)) for one in draws])
    held = np.mean((ends[:, 0] <= mean) & (ends[:, 1] >= mean))
    assert held == pytest.approx(expected, abs=3.72 * np.sqrt(expected * (1 - expected) / 1000))


@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 6])
@pytest.mark.parametrize("n", [6, 8, 11])
def test_intervals_end_where_an_exact_test_rejects(n, level):
    from scipy import stats  # which takes as long as all else that is imported here

    def p_value(mean, alternative):
        return stats.permutation_test(
            (values - mean,),
            np.sum,
            permutation_type="samples",
            n_resamples=np.inf,
            alternative=alternative,
        ).pvalue

    values = np.random.default_rng(n).exponential(size=n)
    ends = sign_flip_interval(list(values), level=level)
    if n < least_seeds(level):
        assert ends is None
        return
    tail = (1 - level) / 2
    low, high = ends
    assert p_value(low - 1e-6, "greater") <= tail < p_value(low + 1e-6, "greater")
    assert p_value(high + 1e-6, "less") <= tail < p_value(high - 1e-6, "less")


def test_intervals_of_many_values_are_students():
    from scipy import stats

    values = np.random.default_rng(0).exponential(size=5000)
    found = mean_with_interval(list(values))
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.05 * width)
    assert found == mean_with_interval(list(values))


def test_a_sum_that_is_zero_but_for_rounding_is_on_neither_side():
    # Of 8 pairs 6 of the 255 means are a tail. Of these, {-0.3, 0.1, 0.2} is the sixth; as floats its sum is
    # above zero.
    values = [0.1, 0.2, 0.25, 0.28, -0.3, 1.0, 1.0, 1.0]
    assert 0.1 + 0.2 - 0.3 > 0
    assert sign_flip_interval(values)[0] == 0.0
    assert not claims(values)
    values[4] = -0.2999
    assert claims(values)


def test_six_pairs_at_least():
    assert (least_seeds(), least_seeds(1 - 0.05 / 3), least_seeds(1 - 0.05 / 6)) == (6, 7, 8)
    assert sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)
    assert sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], level=1 - 0.05 / 2) is None
    # So many comparisons that the tails need more subsets than usual.
    assert claims(np.linspace(1, 2, 40), level=1 - 0.05 / 2000)


def test_intervals_of_next_to_nothing():
    assert mean_with_interval([]) == ConfidenceInterval(None, None, None, 0)
    assert mean_with_interval([3.0]) == ConfidenceInterval(3.0, None, None, 1)
    # That all are the same does not say that the mean is certain.
    assert mean_with_interval([0.1] * 7) == ConfidenceInterval(0.1, None, None, 7)
    assert mean_with_interval([0.0, 1.0]) == ConfidenceInterval(0.5, None, None, 2)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (3, 10), (1, 1), (40, 50)])
def test_intervals_of_proportions_are_wilsons(k, n):
    from scipy import stats

    found = proportion_with_interval([True] * k + [False] * (n - k))
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert (found.mean, found.n) == (k / n, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert proportion_with_interval([]) == ConfidenceInterval(None, None, None, 0)
    again = proportion_with_interval(([True] * k + [False] * (n - k)) * 3, seeds=list(range(n)) * 3)
    assert (again.low, again.high, again.n) == (found.low, found.high, 3 * n)
