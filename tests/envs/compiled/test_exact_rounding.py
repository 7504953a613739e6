"""Each function returns the bits of numpy's scalars; fused multiply-adds are rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from parllel.envs.compiled.exact_rounding import (
    _multiply_add,
    cosine_float32,
    sine_float32,
    square,
    square_float32,
)

EIGHTH = float(np.float32(np.pi / 4))
angles = st.floats(-EIGHTH, EIGHTH, width=32).map(np.float32)


def same(ours, theirs):
    """Compare the bits: 0 is not -0. Called from Python, compiled functions return Python's floats."""
    return np.float32(ours).tobytes() == theirs.tobytes()


@given(st.floats(-1e150, 1e150))
def test_squares_are_those_of_a_numpy_float(x):
    assert square(x) == np.float64(x) ** 2


def test_some_squares_are_not_products():
    numbers = np.random.default_rng(0).uniform(-10, 10, 20_000)
    assert any(square(x) != x * x for x in numbers)
    assert all(square(x) == x**2 for x in numbers)
    singles = numbers.astype(np.float32)
    assert any(square_float32(x) != x * x for x in singles)
    assert all(square_float32(x) == x**2 for x in singles)


@given(st.floats(-(2.0**50), 2.0**50, width=32).map(np.float32))
def test_float32_squares_are_those_of_numpy(x):
    assert np.float32(square_float32(x)) == x**2


@given(angles)
def test_float32_sines_and_cosines_are_those_of_numpy(x):
    assert same(cosine_float32(x), np.cos(x))
    assert same(sine_float32(x), np.sin(x))


def test_thousands_of_sines_and_cosines():
    for x in np.random.default_rng(0).uniform(-EIGHTH, EIGHTH, 50_000).astype(np.float32):
        assert cosine_float32(x) == np.cos(x)
        assert sine_float32(x) == np.sin(x)


floats = st.floats(-1e6, 1e6, width=32, allow_subnormal=False).map(np.float32)


def nearest(exact):
    """Return the float32 next to a fraction; the even one of two that are as near."""
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(
        around,
        key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) % 2),
    )


@given(floats, floats, floats)
def test_a_multiply_add_is_rounded_once(a, b, c):
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    assert np.float32(_multiply_add(a, b, c)) == nearest(exact)


@given(
    st.integers(2**23, 2**24 - 1),
    st.integers(2**23, 2**24 - 1),
    st.integers(24, 60),
    st.sampled_from([-1, 1]),
    st.sampled_from([-1, 1]),
)
# The product ends in a bit that the float64 sum loses; without it, the sum is halfway between two float32s.
@example(2**23, 2**23 + 1, 24, 1, 1)
@example(2**23 + 1, 2**23 + 1, 24, 1, 1)
@example(2**23 + 1, 2**24 - 2, 24, 1, 1)
def test_a_small_product_added_to_one_is_rounded_once(m, n, shift, sign, one):
    a, b, c = (
        np.float32(sign * m * 2.0**-23),
        np.float32(n * 2.0**-23 * 2.0**-shift),
        np.float32(one),
    )
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    assert np.float32(_multiply_add(a, b, c)) == nearest(exact)


def test_without_care_a_sum_would_be_rounded_twice():
    # (1 + 2**-23) * (1 - 2**-23) / 2**24 is 2**-24 less 2**-70.
    a, b, c = np.float32(1 + 2**-23), np.float32((1 - 2**-23) * 2**-24), np.float32(1 + 2**-23)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    twice = np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    assert np.float32(_multiply_add(a, b, c)) == nearest(exact) == c
    assert twice != c
