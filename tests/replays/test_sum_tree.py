"""SumTree against a plain cumulative sum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parllel.replays.sum_tree import SumTree

# Powers of two, and others whose cells are on two levels.
CAPACITIES = [1, 2, 3, 5, 6, 7, 8, 13, 64, 100, 1000]


def _order(capacity: int) -> NDArray[np.intp]:
    """Return all cells from left to right, the order in which the tree sums them."""

    def below(node: int) -> list[int]:
        if node >= capacity:
            return [node - capacity]
        return below(2 * node) + below(2 * node + 1)

    return np.array(below(1)) if capacity > 1 else np.array([0])


def _changed(tree: SumTree, reference: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Change cells of both in one of the ways that a tree offers."""
    capacity = tree.capacity
    if rng.random() < 0.6:
        n = int(rng.integers(0, 2 * capacity + 1))
        cells = rng.integers(0, capacity, n)
        values = rng.random(n) * (rng.random(n) > 0.3)
        tree.set(cells, values)
        for cell, value in zip(cells, values, strict=True):
            reference[cell] = value
    else:
        start = int(rng.integers(0, capacity + 1))
        values = rng.random(int(rng.integers(0, capacity - start + 1)))
        tree.set_range(start, values)
        reference[start : start + len(values)] = values


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_sums_and_searches_agree_with_a_cumulative_sum(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree, reference, order = SumTree(capacity), np.zeros(capacity), _order(capacity)
    assert sorted(order) == list(range(capacity))
    for _ in range(60):
        _changed(tree, reference, rng)
        np.testing.assert_array_equal(tree.values, reference)
        assert tree.total == pytest.approx(math.fsum(reference))
        if not tree.total:
            continue
        ends = np.cumsum(reference[order])
        targets = rng.random(50) * tree.total
        # Near the edge between two cells, rounding decides.
        near = np.abs(ends - targets[:, None]).min(axis=1) < 1e-9
        expected = order[np.searchsorted(ends, targets, side="right").clip(max=capacity - 1)]
        np.testing.assert_array_equal(tree.find(targets)[~near], expected[~near])


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_sum_is_exactly_that_of_its_parts(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree, reference = SumTree(capacity), np.zeros(capacity)
    for _ in range(100):
        _changed(tree, reference, rng)
    nodes = tree.nodes
    for node in range(1, capacity):
        assert nodes[node] == nodes[2 * node] + nodes[2 * node + 1]


def test_the_total_does_not_drift_in_millions_of_changes() -> None:
    rng = np.random.default_rng(0)
    tree, reference = SumTree(1000), np.zeros(1000)
    for _ in range(2000):
        # Large values that come and go would leave their rounding errors in sums updated by differences.
        cells = rng.integers(0, 1000, 1000)
        values = rng.random(1000) * 10.0 ** rng.integers(-8, 9, 1000)
        tree.set(cells, values)
        reference[cells] = values
    other = SumTree(1000)
    other.load(tree.values)
    np.testing.assert_array_equal(other.nodes, tree.nodes)
    tree.set(np.arange(1000), 1.0)
    assert tree.total == 1000.0
    tree.set(np.arange(1000), 0.0)
    assert tree.total == 0.0


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_zeros_are_never_drawn_even_at_the_edges(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree = SumTree(capacity)
    for _ in range(50):
        # Sums of these lose the small values, so that differences of sums point past the last cell.
        values = rng.random(capacity) * 10.0 ** rng.integers(-12, 13, capacity)
        values[rng.random(capacity) < 0.7] = 0
        values[rng.integers(capacity)] = rng.random() + 0.1
        tree.load(values)
        total = tree.total
        edges = np.cumsum(values[_order(capacity)])
        targets = [0.0, np.nextafter(total, 0), total, *edges, *np.nextafter(edges, 0)]
        found = tree.find(np.minimum(targets, total))
        assert (values[found] > 0).all()


def test_frequencies_of_draws() -> None:
    rng = np.random.default_rng(3)
    tree = SumTree(37)
    values = rng.random(37) ** 3
    values[::5] = 0
    tree.load(values)
    n = 400
    counts = sum(np.bincount(tree.draw(n, rng), minlength=37) for _ in range(500))
    expected = values / values.sum() * n * 500
    drawn = values > 0
    assert (counts[~drawn] == 0).all()
    chi2 = ((counts - expected)[drawn] ** 2 / expected[drawn]).sum()
    # 99.9 % quantile for 28 degrees of freedom; stratification makes the statistic smaller.
    assert chi2 < 56.9


def test_single_draws_are_in_proportion() -> None:
    rng = np.random.default_rng(4)
    tree = SumTree(11)
    values = np.arange(11.0)
    tree.load(values)
    counts = np.bincount([tree.draw(1, rng)[0] for _ in range(11000)], minlength=11)
    expected = values / 55 * 11000
    chi2 = ((counts - expected)[1:] ** 2 / expected[1:]).sum()
    assert chi2 < 27.9  # 99.9 % quantile for 9 degrees of freedom
    assert counts[0] == 0


def test_draws_are_stratified() -> None:
    rng = np.random.default_rng(5)
    tree = SumTree(64)
    tree.load(np.ones(64))
    for _ in range(20):
        np.testing.assert_array_equal(tree.draw(64, rng), np.arange(64))


def test_the_last_value_of_a_repeated_cell_counts() -> None:
    tree = SumTree(5)
    tree.set([3, 1, 3], [7.0, 1.0, 2.0])
    np.testing.assert_array_equal(tree.values, [0, 1, 0, 2, 0])
    assert tree.total == 3


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_wrong_values_are_refused_and_change_nothing(value: float) -> None:
    tree = SumTree(4)
    tree.load([1.0, 2.0, 3.0, 4.0])
    for change in (
        lambda: tree.set([0, 2], [5.0, value]),
        lambda: tree.set_range(1, [5.0, value]),
    ):
        with pytest.raises(ValueError, match="cell 2: expected a finite value"):
            change()
    np.testing.assert_array_equal(tree.values, [1, 2, 3, 4])
    assert tree.total == 10


def test_cells_that_do_not_exist_are_refused() -> None:
    tree = SumTree(4)
    for cell in (-1, 4):
        with pytest.raises(IndexError, match=f"cell {cell}: expected cells from 0 to 3"):
            tree.set([0, cell], 1.0)
        with pytest.raises(IndexError, match="expected cells from 0 to 3"):
            tree.set_range(cell, [1.0, 1.0])
    assert tree.total == 0


def test_an_empty_tree_cannot_be_drawn_from() -> None:
    tree = SumTree(4)
    tree.set([], [])
    tree.set_range(4, [])
    with pytest.raises(ValueError, match="all are 0"):
        tree.draw(2, np.random.default_rng(0))


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_wrong_capacities_are_refused(capacity: Any) -> None:
    with pytest.raises(ValueError, match="capacity"):
        SumTree(capacity)


def test_shapes_are_checked() -> None:
    tree = SumTree(4)
    with pytest.raises(ValueError, match="cells"):
        tree.set([[0]], [1.0])
    with pytest.raises(ValueError, match="could not broadcast"):
        tree.set([0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="expected shape"):
        tree.load([1.0])
