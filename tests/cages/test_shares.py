from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.cages.workers.start_workers import divide


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, int, int, int]:
    n = draw(st.integers(1, 60))
    n_main = draw(st.integers(0, n - 1))
    return n, draw(st.integers(1, n - n_main)), draw(st.integers(1, min(n, 5))), n_main


@given(divisions())
def test_every_column_has_one_owner(division: tuple[int, int, int, int]) -> None:
    n, n_workers, n_groups, n_main = division
    groups, shares = divide(*division)
    # Groups: contiguous, in order, of nearly one size.
    assert [i for group in groups for i in range(n)[group]] == list(range(n))
    sizes = [group.stop - group.start for group in groups]
    assert (len(groups), max(sizes) - min(sizes) <= 1) == (n_groups, True)
    # Shares: in each group contiguous, workers in their order and main at the end.
    assert len(shares) == n_workers + 1
    for g, group in enumerate(groups):
        owned = [i for share in shares for i in range(n)[share[g]]]
        assert owned == list(range(n))[group]
        workers = [share[g].stop - share[g].start for share in shares[:-1]]
        assert max(workers) - min(workers) <= 1
    totals = [sum(part.stop - part.start for part in share) for share in shares]
    assert totals[-1] == n_main
    assert min(totals[:-1]) >= 1  # no worker without work
    assert max(totals[:-1]) - min(totals[:-1]) <= 1


@given(divisions())
def test_main_has_a_part_of_every_group(division: tuple[int, int, int, int]) -> None:
    n_groups, n_main = division[2:]
    groups, shares = divide(*division)
    mine = [part.stop - part.start for part in shares[-1]]
    sizes = [group.stop - group.start for group in groups]
    for size, part in zip(sizes, mine, strict=True):
        assert part <= size
        # As even as whole groups allow.
        assert part >= min(size, n_main // n_groups)


def test_divide_by_hand() -> None:
    groups, shares = divide(8, 2, 2, 2)
    assert groups == [slice(0, 4), slice(4, 8)]
    assert shares == [
        [slice(0, 2), slice(4, 5)],
        [slice(2, 3), slice(5, 7)],
        [slice(3, 4), slice(7, 8)],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 0, 1, 0), "n_workers: expected at least 1, got 0"),
        ((4, 5, 1, 0), "n_workers: expected at most 4, one for each .*, got 5"),
        ((4, 3, 1, 2), "n_workers: expected at most 2, one for each .*, got 3"),
        ((4, 1, 0, 0), "n_groups: expected 1 to 4 for 4 environments, got 0"),
        ((4, 1, 5, 0), "n_groups: expected 1 to 4 for 4 environments, got 5"),
        ((4, 1, 1, 4), "n_main: expected 0 to 3 of 4 environments, got 4"),
        ((4, 1, 1, -1), "n_main: expected 0 to 3 of 4 environments, got -1"),
    ],
)
def test_divisions_that_cannot_be(arguments: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        divide(*arguments)
