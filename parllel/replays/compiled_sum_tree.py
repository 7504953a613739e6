"""Compiled loops of a SumTree, and of the priorities kept in it.

Imports numba, so it is itself imported only by the first tree.

    node 1            the total
    node k            sum of nodes 2 k and 2 k + 1
    node n + i        value of cell i, of n cells

All cells of a call move through the tree level by level, not one cell after another: the reads of one level
do not depend on each other, so the processor waits for many of them at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@compiled("(f8[::1], i8[::1], i8)", nogil=True)
def add_up(tree: Doubles, nodes: Ints, n: int) -> None:
    """Recompute all sums above the first n of `nodes`, which are overwritten."""
    # Sums are computed from their two parts and never by adding a difference: rounding does not accumulate.
    top = 0
    for i in range(n):
        top = max(top, nodes[i])
    while top > n:
        top >>= 1
        for i in range(n):
            node = nodes[i] >> 1
            nodes[i] = node
            # A cell that is one level nearer to the root is there already.
            if node:
                tree[node] = tree[2 * node] + tree[2 * node + 1]
    # From here on there are no more nodes than cells. Parts have larger numbers than their sum.
    if n:
        for node in range(min(top, len(tree) // 2 - 1), 0, -1):
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@compiled("(f8[::1], i8, i8)", nogil=True)
def add_up_range(tree: Doubles, first: int, last: int) -> None:
    """Recompute all sums above the nodes `first` to `last`."""
    while last > 1:
        first >>= 1
        last >>= 1
        for node in range(last, max(first, 1) - 1, -1):
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@compiled("b1(f8[::1], i8[::1], f8[::1], i8[::1])", nogil=True)
def set_cells(tree: Doubles, cells: Ints, values: Doubles, nodes: Ints) -> bool:
    """Set the values of cells, the last one where a cell occurs twice.

    nodes: memory for as many numbers as there are cells.

    Returns False, without a change, if a value is negative, infinite or NaN, or a cell does not exist.
    """
    n, size = len(cells), len(tree) // 2
    for i in range(n):
        if not 0.0 <= values[i] < math.inf or not 0 <= cells[i] < size:
            return False
    for i in range(n):
        nodes[i] = size + cells[i]
        tree[nodes[i]] = values[i]
    add_up(tree, nodes, n)
    return True


@compiled("(f8[::1], f8[::1], i8[::1], f8[::1])", nogil=True)
def find_cells(tree: Doubles, targets: Doubles, cells: Ints, values: Doubles) -> None:
    """Write the cells at which the running sum exceeds the targets, and their values.

    targets: below the total, which must be positive; overwritten.

    A cell whose value is zero is never found, whatever rounding has done to the sums: no step enters a
    half whose sum is zero, and where the sum is positive, so is one half of it.
    """
    n, size = len(targets), len(tree) // 2
    for i in range(n):
        cells[i] = 1
    low = 1
    while 2 * low <= size:  # all nodes of this level have parts
        low *= 2
        for i in range(n):
            node = 2 * cells[i]
            left = tree[node]
            # No branch, which would be guessed wrong every other time: this takes half as long.
            right = (targets[i] >= left) & (tree[node + 1] > 0.0)
            targets[i] -= left if right else 0.0
            cells[i] = node + right
    for i in range(n):
        node = cells[i]
        if (
            node < size
        ):  # the last level holds the rest of the cells if their number is no power of two
            node *= 2
            if targets[i] >= tree[node] and tree[node + 1] > 0.0:
                node += 1
        cells[i] = node - size
        values[i] = tree[node]


@compiled("(f8[::1], f8[::1], f8, i8[::1], f8[::1], f4[::1])", nogil=True, error_model="numpy")
def draw_cells(
    tree: Doubles, uniform: Doubles, beta: float, cells: Ints, values: Doubles, weight: Floats
) -> None:
    """Draw cells in proportion to their values, one from each n-th part of the total.

    uniform: [n], numbers from 0 to 1 (excluded); overwritten.
    weight: [n], `value**-beta`, divided by the largest of them (Schaul et al. 2016, section 3.4).
    """
    n = len(uniform)
    part = tree[1] / n
    for i in range(n):
        uniform[i] = (i + uniform[i]) * part
    find_cells(tree, uniform, cells, values)
    least = math.inf
    for i in range(n):
        least = min(least, values[i])
    for i in range(n):
        # The number of cells and the total cancel. The least value has the largest weight.
        weight[i] = (least / values[i]) ** beta


@compiled("f8(f8[::1], i8[::1], f8[::1], f8, f8, f8, i8[::1])", nogil=True)
def set_priorities(
    tree: Doubles,
    cells: Ints,
    errors: Doubles,
    alpha: float,
    epsilon: float,
    highest: float,
    nodes: Ints,
) -> float:
    """Set cells to `(|error| + epsilon)**alpha`, and return the highest value so far.

    Cells below 0, and those whose value is 0, are left as they are: they cannot be drawn any more.

    Returns -1, without a change, if an error is infinite or NaN.
    """
    size, n = len(tree) // 2, 0
    for i in range(len(cells)):
        if not abs(errors[i]) < math.inf:
            return -1.0
    for i in range(len(cells)):
        node = size + cells[i]
        if cells[i] >= 0 and tree[node] > 0.0:
            value = (abs(errors[i]) + epsilon) ** alpha
            highest = max(highest, value)
            tree[node] = value
            nodes[n] = node
            n += 1
    add_up(tree, nodes, n)
    return highest
