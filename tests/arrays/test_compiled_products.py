"""Products of small matrices against float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parllel.arrays.compiled_products import COLUMNS, multiply

GUARD = 7.0  # before, between and after the rows of a result


def matrix(rng, n_rows, n_columns, spare, turned=False):
    """Return a matrix whose rows, or columns with `turned`, lie `spare` numbers apart."""
    if turned:
        return matrix(rng, n_columns, n_rows, spare).T
    whole = rng.normal(size=(n_rows, n_columns + spare)).astype(np.float32)
    return whole[:, :n_columns]


def address(array):
    return array.ctypes.data


def distances(array):
    return [distance // 4 for distance in array.strides]


SIZES = {
    "n_rows": st.integers(0, 30),
    "n_k": st.integers(0, 70),
    "n_blocks": st.integers(1, 3),
    "spare": st.integers(0, 5),
    "turned": st.booleans(),
    "seed": st.integers(0, 1000),
}


@given(first=st.sampled_from(["rows", "one row", "the result"]), **SIZES)
def test_products_are_those_of_float64(n_rows, n_k, n_blocks, spare, turned, first, seed):
    rng, n_columns = np.random.default_rng(seed), n_blocks * COLUMNS
    a = matrix(rng, n_rows, n_k, spare, turned)
    b = matrix(rng, n_k, n_columns, spare)
    around = np.full((n_rows + 2, n_columns + spare), GUARD, np.float32)
    c = around[1:-1, :n_columns]
    added = matrix(rng, 1 if first == "one row" else n_rows, n_columns, spare)
    expected = added.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    if first == "the result":
        c[:] = added
        added = c
    multiply(
        *(address(a), *distances(a), address(b), distances(b)[0], n_k),
        *(address(added), 0 if first == "one row" else distances(added)[0]),
        *(address(c), distances(c)[0], n_rows, n_columns),
    )
    if n_rows:
        np.testing.assert_allclose(c, expected, rtol=0, atol=2e-6 * max(n_k, 1))
    c[:] = GUARD
    assert (around == GUARD).all()


@given(**SIZES)
def test_a_row_does_not_depend_on_the_others(n_rows, n_k, n_blocks, spare, turned, seed):
    rng, n_columns = np.random.default_rng(seed), n_blocks * COLUMNS
    a, b = matrix(rng, n_rows, n_k, spare, turned), matrix(rng, n_k, n_columns, spare)
    zeros, results = np.zeros(n_columns, np.float32), np.empty((2, n_rows, n_columns), np.float32)

    def product(start, stop, c):
        multiply(
            *(address(a[start:]), *distances(a), address(b), distances(b)[0], n_k),
            *(address(zeros), 0, address(c[start:]), n_columns, stop - start, n_columns),
        )

    product(0, n_rows, results[0])
    for row in range(n_rows):
        product(row, row + 1, results[1])
    np.testing.assert_array_equal(results[0], results[1])
