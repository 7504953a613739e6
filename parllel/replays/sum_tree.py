"""Values of many cells with their sums, to draw cells in proportion to their values."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SumTree:
    """A binary tree over non-negative float64 values; every node is the sum of its two parts.

    Setting and drawing n cells takes n log2(capacity) steps. After any number of changes each node
    equals the sum of its two parts exactly, so errors do not accumulate. Cells whose value is zero are never
    drawn.

    Args:
        capacity: number of cells, not necessarily a power of two. All values are 0 at first. A cell takes
            16 bytes.

    Raises:
        ValueError: if the capacity is less than one.
    """

    def __init__(self, capacity: int) -> None:
        if (
            isinstance(capacity, bool)
            or not isinstance(capacity, (int, np.integer))
            or capacity < 1
        ):
            raise ValueError(f"capacity: expected an int of at least 1, got {capacity!r}")
        self.capacity = int(capacity)
        self._tree = np.zeros(2 * self.capacity)
        self._nodes = np.empty(0, np.int64)
        # Imported here, because importing numba takes a third of a second.
        self._compiled: Any = importlib.import_module("parllel.replays.compiled_sum_tree")

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._tree[1])

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of all cells, a read-only view [capacity]."""
        values = self._tree[self.capacity :]
        values.flags.writeable = False
        return values

    @property
    def nodes(self) -> NDArray[np.float64]:
        """All sums and values, for compiled code that reads the tree: [2 * capacity].

        Node 1 is the total, node k the sum of nodes 2 k and 2 k + 1, node capacity + i the value of cell i.
        """
        return self._tree

    def set(self, cells: ArrayLike, values: ArrayLike) -> None:
        """Set the values of cells.

        cells: [n] ints; if a cell occurs more than once, its last value is used.
        values: [n] or a scalar, finite and not negative.

        Raises:
            ValueError: for other values; nothing is changed then.
            IndexError: for a cell that does not exist.
        """
        places = np.ascontiguousarray(cells, np.int64)
        if places.ndim != 1:
            raise ValueError(f"cells: expected [n] ints, got shape {places.shape}")
        numbers = np.empty(len(places))
        numbers[:] = values
        if not self._compiled.set_cells(self._tree, places, numbers, self._space(len(places))):
            self._refuse(places, numbers)

    def set_range(self, start: int, values: ArrayLike) -> None:
        """Set the values of the cells from `start` on, which is faster than `set`.

        values: [n], finite and not negative.

        Raises:
            ValueError: for other values; nothing is changed then.
            IndexError: if cells do not exist.
        """
        numbers = np.asarray(values, np.float64)
        n = len(numbers)
        if not 0 <= start <= start + n <= self.capacity:
            raise IndexError(
                f"cells {start} to {start + n - 1}: expected cells from 0 to {self.capacity - 1}"
            )
        if not n:
            return
        # One comparison that NaN fails too.
        if not (numbers.min() >= 0 and numbers.max() < np.inf):
            self._refuse(np.arange(start, start + n), numbers)
        first = self.capacity + start
        self._tree[first : first + n] = numbers
        self._compiled.add_up_range(self._tree, first, first + n - 1)

    def find(self, targets: ArrayLike) -> NDArray[np.int64]:
        """Return the first cells at which the running sum of the values exceeds the targets.

        targets: [n], at least 0 and below `total`.  Returns [n] int64.

        Cells are in an order of their own unless `capacity` is a power of two. For targets that are uniformly
        distributed, each cell is found in proportion to its value.

        Raises:
            ValueError: if all values are 0.
        """
        left = np.array(targets, np.float64)
        if not self.total > 0:
            raise ValueError("SumTree: expected a positive value to draw from, but all are 0")
        cells, values = np.empty(len(left), np.int64), np.empty(len(left))
        self._compiled.find_cells(self._tree, left, cells, values)
        return cells

    def draw(self, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw n cells with replacement, each in proportion to its value. Returns [n] int64.

        The draw is stratified: one target from each n-th part of the total, which reduces the variance
        (Schaul et al. 2016, appendix B.2.1).

        Raises:
            ValueError: if all values are 0.
        """
        return self.find((np.arange(n) + generator.random(n)) * (self.total / n))

    def load(self, values: ArrayLike) -> None:
        """Set the values of all cells, [capacity]; see `set_range`."""
        numbers = np.asarray(values, np.float64)
        if numbers.shape != (self.capacity,):
            raise ValueError(f"values: expected shape {(self.capacity,)}, got {numbers.shape}")
        self.set_range(0, numbers)

    def add_up(self) -> None:
        """Recompute all sums, after values were written to `nodes`."""
        self._compiled.add_up_range(self._tree, self.capacity, 2 * self.capacity - 1)

    def _space(self, n: int) -> NDArray[np.int64]:
        if len(self._nodes) < n:
            self._nodes = np.empty(n, np.int64)
        return self._nodes

    def _refuse(self, cells: NDArray[Any], values: NDArray[Any]) -> None:
        outside = cells[(cells < 0) | (cells >= self.capacity)]
        if len(outside):
            raise IndexError(f"cell {outside[0]}: expected cells from 0 to {self.capacity - 1}")
        wrong = np.flatnonzero(~((values >= 0) & (values < np.inf)))[0]
        raise ValueError(
            f"cell {cells[wrong]}: expected a finite value of at least 0, got {values[wrong]}"
        )
