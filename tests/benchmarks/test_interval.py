from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def interval():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from benchmarks.harness import interval

        yield interval


@pytest.mark.parametrize("n", range(1, 15))
def test_interval_covers_the_median_as_often_as_it_says(interval, n):
    # Each value lies above or below the true median like a fair coin: all 2**n outcomes are counted.
    low, high = interval.estimate([float(i) for i in range(n)])[1:]
    missed = 0
    for above in product((False, True), repeat=n):
        below = n - sum(above)  # the sorted values 0 .. below - 1 lie below the median
        missed += below <= low or below > high
    assert high == n - 1 - low
    if n >= interval.ENOUGH:
        assert missed / 2**n <= 0.05
    else:
        assert (low, high) == (0, n - 1)


def test_interval_is_no_wider_than_it_must_be(interval):
    # From tables of the sign test: ranks 4 and 12 of 15, 2 and 9 of 10, 6 and 15 of 20.
    for n, rank in ((15, 4), (10, 2), (20, 6)):
        found = interval.estimate(list(range(1, n + 1)))
        assert (found.low, found.high) == (rank, n + 1 - rank)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), seed=st.randoms())
def test_order_of_the_values_is_nothing(interval, values, seed):
    found = interval.estimate(values)
    assert found.low <= found.median <= found.high
    seed.shuffle(values)
    assert interval.estimate(values) == found


def test_no_values_are_refused(interval):
    with pytest.raises(ValueError, match="values: expected at least one"):
        interval.estimate([])


def test_the_far_bound_decides_what_is_met(interval):
    found = interval.Estimate(2.0, 1.5, 3.0)
    assert (found.reaches(1.5), found.reaches(1.6)) == (True, False)
    assert found.reaches(3.0, small_is_good=True)
    assert not found.reaches(2.9, small_is_good=True)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=15).filter(lambda v: len(v) % 2))
def test_the_inverse_is_that_of_the_reciprocals(interval, values):
    expected = interval.estimate([1 / value for value in values])
    assert interval.estimate(values).inverse() == pytest.approx(expected)
