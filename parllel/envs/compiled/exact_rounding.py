"""Squares, sines and cosines that are rounded as numpy rounds them.

For a numpy scalar, `x ** 2` is the C library's `pow(x, 2)`, which differs from x * x in the last bit for
one number in a thousand. For float32, numpy evaluates sines and cosines as polynomials with
fused multiply-adds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parllel.system.compilation import compiled

# From the highest power down to that of x**0 and x**1, for angles between -pi / 4 and pi / 4.
_COSINE_8, _COSINE_6, _COSINE_4, _COSINE_2, _ONE = (
    np.float32(float.fromhex(digits))
    for digits in ("0x1.98e616p-16", "-0x1.6c06dcp-10", "0x1.55553cp-05", "-0x1p-01", "0x1p+00")
)
_SINE_9, _SINE_7, _SINE_5, _SINE_3 = (
    np.float32(float.fromhex(digits))
    for digits in ("0x1.7d3bbcp-19", "-0x1.a06bbap-13", "0x1.11119ap-07", "-0x1.555556p-03")
)


@compiled()
def square(x: float) -> float:
    """Return `numpy.float64(x) ** 2`."""
    # LLVM would replace pow(x, 2) by x * x. It cannot simplify 2 + 0 * x, which is NaN for infinity.
    return math.pow(x, 2.0 + 0.0 * x)


@compiled()
def square_float32(x: Any) -> Any:
    """Return `x ** 2` of a numpy.float32."""
    return x ** (np.float32(2.0) + np.float32(0.0) * x)


@compiled()
def cosine_float32(x: Any) -> Any:
    """Return `numpy.cos(x)` of a numpy.float32 between -pi / 4 and pi / 4."""
    square = x * x
    result = _multiply_add(_COSINE_8, square, _COSINE_6)
    result = _multiply_add(result, square, _COSINE_4)
    result = _multiply_add(result, square, _COSINE_2)
    return _multiply_add(result, square, _ONE)


@compiled()
def sine_float32(x: Any) -> Any:
    """Return `numpy.sin(x)` of a numpy.float32 between -pi / 4 and pi / 4."""
    square = x * x
    result = _multiply_add(_SINE_9, square, _SINE_7)
    result = _multiply_add(result, square, _SINE_5)
    result = _multiply_add(result, square, _SINE_3)
    # Adding 0 turns -0 into 0, as in numpy.
    result = _multiply_add(result, square, np.float32(0.0))
    return _multiply_add(result, x, x)


@compiled()
def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of float32s, rounded once."""
    product, addend = np.float64(a) * np.float64(b), np.float64(c)  # exact
    total = product + addend
    # What the sum lost (Knuth's TwoSum) decides between two float32s if `total` is halfway between them.
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    near = np.float32(total)
    other = np.float64(near) + 2.0 * (total - np.float64(near))
    halfway = other != np.float64(near) and np.float64(np.float32(other)) == other
    if halfway and lost != 0.0 and (lost > 0.0) == (other > np.float64(near)):
        return np.float32(other)
    return near
