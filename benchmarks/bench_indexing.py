"""What is the cost of indexing, compared with numpy?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.arrays import Array

T, B, FEATURES = 64, 16, 17


def _write_all(target: Any, cells: list[tuple[int, int]], value: Any) -> int:
    for t, b in cells:
        target[t, b] = value
    return len(cells)


def _index_all(source: Any, cells: list[tuple[int, int]]) -> int:
    for t, b in cells:
        source[t, b]
    return len(cells)


def _read_all(source: Any, cells: list[tuple[int, int]]) -> int:
    for t, b in cells:
        np.asarray(source[t, b])
    return len(cells)


def _cells(columns: int) -> list[tuple[int, int]]:
    return [(t, b) for t in range(T) for b in range(columns)]


@contextmanager
def writing(shape: tuple[int, ...], value: Any) -> Iterator[Sides]:
    """Write `array[t, b] = value` in every cell."""
    array, plain = Array(shape, np.float32), np.zeros(shape, np.float32)
    cells = _cells(B)

    def check() -> None:
        _write_all(array, cells, value)
        _write_all(plain, cells, value)
        np.testing.assert_array_equal(array, plain)
        np.testing.assert_array_equal(plain[5, 3], value)

    yield Sides(
        partial(_write_all, array, cells, value), partial(_write_all, plain, cells, value), check
    )


@contextmanager
def viewing(go_through: Callable[[Any, list[tuple[int, int]]], int]) -> Iterator[Sides]:
    """Make a view of every cell."""
    array, plain = Array((T, B, FEATURES), np.float32), np.zeros((T, B, FEATURES), np.float32)
    np.asarray(array)[:] = plain[:] = np.arange(T * B * FEATURES).reshape(T, B, FEATURES)
    cells = _cells(B)

    def check() -> None:
        for cell in cells:
            np.testing.assert_array_equal(array[cell], plain[cell])

    yield Sides(partial(go_through, array, cells), partial(go_through, plain, cells), check)


@contextmanager
def growing(columns: int) -> Iterator[Sides]:
    """Make a view of each column of a row, of `columns` columns (ours) and of B (theirs).

    A unit is one view, so the ratio says whether a view becomes dearer the more columns there are.
    """
    wide = Array((T, columns, FEATURES), np.float32)
    narrow = Array((T, B, FEATURES), np.float32)
    row = [(5, b) for b in range(columns)]

    def check() -> None:
        wide[5, columns - 1], narrow[5, B - 1] = 1.0, 1.0
        np.testing.assert_array_equal(wide[5, columns - 1], narrow[5, B - 1])

    yield Sides(partial(_index_all, wide, row), partial(_index_all, narrow, row[:B] * 8), check)


COMPARISONS = [
    Comparison(
        "indexing/write-scalar",
        "array[t, b] = scalar, against numpy",
        partial(writing, (T, B), 1.5),
        reads="slower",
        target=6.0,
        aim=3.0,
    ),
    Comparison(
        "indexing/write-row",
        f"array[t, b] = {FEATURES} floats, against numpy",
        partial(writing, (T, B, FEATURES), np.ones(FEATURES, np.float32)),
        reads="slower",
        target=6.0,
        aim=3.0,
    ),
    Comparison(
        "indexing/view",
        "array[t, b], not read, against a numpy view",
        partial(viewing, _index_all),
        reads="slower",
    ),
    Comparison(
        "indexing/read",
        "np.asarray(array[t, b]), against a numpy view",
        partial(viewing, _read_all),
        reads="slower",
    ),
    *[
        Comparison(
            f"indexing/lazy-B={columns}",
            f"array[t, b] for each b at B={columns}, against B={B}, per view",
            partial(growing, columns),
            reads="slower",
            quick=False,
        )
        for columns in (128, 1024)
    ],
]

test_indexing = timed_sides(COMPARISONS)
