from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def comparing():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from benchmarks.end_to_end import comparing

    return comparing


def test_points_are_means_over_episodes_of_some_batches(comparing):
    returns = [[], [1.0, 3.0], [5.0], [], [], [8.0], [2.0]]
    curve = comparing.learning_curve(returns, 10, batches_per_point=2)
    # Two batches each; nothing ended in the third pair but 8; the last point is one batch.
    assert curve == [(20, 2.0), (40, 5.0), (60, 8.0), (70, 2.0)]
    assert comparing.area(curve) == 4.25


def test_a_point_without_episodes_repeats_the_one_before(comparing):
    assert comparing.learning_curve([[], [], [4.0], [], []], 1, 1) == [(3, 4.0), (4, 4.0), (5, 4.0)]


def test_p_value_by_hand(comparing):
    # Of the 20 regroupings only the observed one and its mirror image lie as far apart.
    assert comparing.permutation_p_value([1, 2, 3], [4, 5, 6]) == 2 / 20
    assert comparing.permutation_p_value([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == 2 / 252
    assert comparing.permutation_p_value([3.0, 3.0], [3.0, 3.0]) == 1.0


@settings(max_examples=40)
@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=3),
    st.lists(st.integers(-20, 20), min_size=1, max_size=3),
)
def test_p_value_is_the_share_over_all_orders(comparing, first, second):
    """In whole numbers: sums over all orders of all values, the first of which are one group."""
    n, m = len(first), len(second)

    def apart(values):
        return abs(m * sum(values[:n]) - n * sum(values[n:]))

    observed = apart([*first, *second])
    orders = list(itertools.permutations([*first, *second]))
    expected = sum(apart(order) >= observed for order in orders) / len(orders)
    assert comparing.permutation_p_value(first, second) == pytest.approx(expected)


@pytest.mark.parametrize("n", range(1, 5))
@pytest.mark.parametrize("m", range(1, 5))
def test_the_least_p_value_is_that_of_groups_far_apart(comparing, n, m):
    apart = comparing.permutation_p_value(range(n), range(1000, 1000 + m))
    assert comparing.least_p_value(n, m) == pytest.approx(apart)


def test_the_interval_of_a_difference_by_hand(comparing):
    # Shifted by 10 the groups are equal. At 85 % a shift is rejected if only the groups themselves, and their
    # mirror image, are as far apart: 2 of 20 regroupings. That is so once the shifts differ by more than 2.
    low, high = comparing.difference_interval([1, 2, 3], [11, 12, 13], confidence=0.85)
    assert (low, high) == (pytest.approx(-12, abs=0.01), pytest.approx(-8, abs=0.01))


@settings(max_examples=20)
@given(
    st.lists(st.integers(-20, 20), min_size=4, max_size=5),
    st.lists(st.integers(-20, 20), min_size=4, max_size=5),
    st.integers(-50, 50),
)
def test_the_interval_holds_what_the_test_does_not_reject(comparing, first, second, shift):
    low, high = comparing.difference_interval(first, second)
    margin = 0.02 * (max(first + second) - min(first + second)) + 1e-6
    moved = [value - shift for value in first]
    if low + margin < shift < high - margin:
        assert comparing.permutation_p_value(moved, second) > 0.05
    elif not low - margin < shift < high + margin:
        assert comparing.permutation_p_value(moved, second) <= 0.05


def curves_of(comparing, heights):
    return [[comparing.Point(10 * i, height) for i, height in enumerate(seed)] for seed in heights]


@pytest.mark.parametrize(
    ("shift", "verdict", "inside"), [(0, "alike", 1.0), (100, "higher", 0.0), (-100, "lower", 0.0)]
)
def test_verdict_on_curves(comparing, shift, verdict, inside):
    theirs = curves_of(comparing, [(1, 11), (2, 12), (3, 13), (4, 14), (5, 15)])
    ours = curves_of(comparing, [(s + 1.5 + shift, s + 11.5 + shift) for s in range(5)])
    likeness = comparing.likeness(ours, theirs)
    assert likeness.verdict == verdict
    assert likeness.inside == inside
    assert (likeness.ours, likeness.theirs) == (8.5 + shift, 8.0)


def test_inside_counts_points(comparing):
    theirs = curves_of(comparing, [(0, 0, 0, 0), (10, 10, 10, 10)])
    ours = curves_of(comparing, [(4, 9, 10, 50), (6, 13, 10, 70)])  # means 5, 11, 10, 60
    assert comparing.likeness(ours, theirs).inside == 0.5


def test_ratios_are_taken_seed_by_seed(comparing):
    from benchmarks.harness.answers import ratios
    from benchmarks.harness.interval import estimate

    assert estimate(ratios([30.0, 80.0, 20.0], [10.0, 20.0, 10.0])) == (3.0, 2.0, 4.0)
