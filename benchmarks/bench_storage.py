"""Does sharing an array between processes have a cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.arrays import Array, ManagedMemoryArray, SharedMemoryArray

T, B, FEATURES = 64, 16, 17
ROW = np.arange(B * FEATURES, dtype=np.float32).reshape(B, FEATURES)


def _write_rows(array: Array, rows: list[Any], target: Any) -> int:
    for t in range(T):
        array[t] = ROW
    return T


def _read_rows(array: Array, rows: list[Any], target: Any) -> int:
    for row in rows:
        np.copyto(target, row)
    return T


@contextmanager
def in_storage(cls: type[Array], go_through: Callable[..., int]) -> Iterator[Sides]:
    """Go through all rows of an array of `cls` (ours) and of a local one (theirs)."""
    target = np.empty_like(ROW)
    works = []
    arrays = [kind((T, B, FEATURES), np.float32) for kind in (cls, Array)]
    for array in arrays:
        rows = [np.asarray(array[t]) for t in range(T)]
        works.append(partial(go_through, array, rows, target))

    def check() -> None:
        for array in arrays:
            for t in range(T):
                array[t] = ROW + t
        np.testing.assert_array_equal(arrays[0], arrays[1])

    yield Sides(works[0], works[1], check)


COMPARISONS = [
    Comparison(
        f"storage/{name}-{operation}",
        f"{operation} rows in {name} memory, against local",
        partial(in_storage, cls, go_through),
        reads="slower",
    )
    for name, cls in (("shared", SharedMemoryArray), ("managed", ManagedMemoryArray))
    for operation, go_through in (("write", _write_rows), ("read", _read_rows))
]

test_storage = timed_sides(COMPARISONS)
