"""Forward and backward passes of fully connected networks whose layers are narrow.

    forward    for each block of rows: x -> hidden layer -> ... -> outputs
    backward   for each block of rows: gradients of outputs -> last layer -> ... -> first layer

A block passes through all layers while it is in the cache, and a pass is one call: with layers of 64 units,
the calls of a library take as long as its products. A table has a row for each layer, with addresses, as
networks differ in their number of layers. Callers keep the memory, and check shapes.

This module imports numba, so it is imported by the first update.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from parllel.arrays.compiled_policy import tanh_in_place
from parllel.arrays.compiled_products import floats_at, multiply
from parllel.system.compilation import compiled

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# Columns of a table. WEIGHT is [n_out, n_in], OUTPUT [n, n_out]. GRADIENT is [n, n_out], of all layers but
# the last scratch, as are TURNED [n_in, n_out] and SUMS [n_out].
N_IN, N_OUT, WEIGHT, BIAS, GRAD_WEIGHT, GRAD_BIAS, OUTPUT, GRADIENT, TURNED, SUMS = range(10)
# Rows that pass through the layers together: few enough for the cache, and for sums in float32.
_BLOCK = 48

_compiled = compiled(error_model="numpy")
_contracted = compiled(error_model="numpy", fastmath={"contract"})
_reordered = compiled(error_model="numpy", fastmath={"contract", "reassoc"})


@_compiled
def _turn(source: Any, target: Any, n_rows: int, n_columns: int) -> None:
    """Write the transpose of `source` [n_rows, n_columns]."""
    for j in range(n_columns):
        row = target[j * n_rows : (j + 1) * n_rows]
        for i in range(n_rows):
            row[i] = source[i * n_columns + j]


@_compiled
def _rectify(x: Floats) -> None:
    zero = np.float32(0)
    for i in range(x.size):
        # The sum is explained in `compiled_updates.rectify`.
        x[i] = max(x[i], zero) + zero


@_reordered
def _dot(x: Floats, y: Floats) -> Any:
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@_compiled
def _last_layer(x: Floats, weight: Floats, bias: Floats, out: Floats) -> None:
    """Write weight @ x + bias for each row of `x`."""
    # Outputs are few: vectors are made of inputs, and there is no activation.
    n_out = bias.size
    n_in = weight.size // n_out
    for r in range(out.size // n_out):
        row = x[r * n_in : (r + 1) * n_in]
        for j in range(n_out):
            out[r * n_out + j] = _dot(row, weight[j * n_in : (j + 1) * n_in]) + bias[j]


@_contracted
def _scale_by_slope(gradient: Floats, output: Floats, is_tanh: bool) -> None:
    one, zero = np.float32(1), np.float32(0)
    if is_tanh:
        for i in range(gradient.size):
            gradient[i] *= one - output[i] * output[i]
    else:
        for i in range(gradient.size):
            # Selected, not multiplied: the gradient of what is cut is 0 even where the other is infinite.
            gradient[i] = gradient[i] if output[i] > 0 else zero


@_compiled
def _add_rows(gradient: Floats, layer: Ints, is_first: bool) -> None:
    """Add the rows of a gradient [n, n_out] to the gradient of the bias, or replace that by their sum."""
    size = layer[N_OUT]
    sums, totals = carray(floats_at(layer[SUMS]), size), carray(floats_at(layer[GRAD_BIAS]), size)
    # Not at once, as sums of sums lose fewer digits.
    sums[:] = 0
    for r in range(gradient.size // size):
        row = gradient[r * size : (r + 1) * size]
        for i in range(size):
            sums[i] += row[i]
    for i in range(size):
        totals[i] = sums[i] if is_first else totals[i] + sums[i]


@compiled("(f4[:,:], i8[:,::1], i8, b1)", nogil=True, error_model="numpy")
def forward(x: Floats, layers: Ints, n_hidden: int, is_tanh: bool) -> None:
    """Write the outputs of all layers for `x` [n, n_in]. The first `n_hidden` layers are hidden."""
    for i in range(n_hidden):
        n_in, n_out = layers[i, N_IN], layers[i, N_OUT]
        weight = carray(floats_at(layers[i, WEIGHT]), n_out * n_in)
        _turn(weight, carray(floats_at(layers[i, TURNED]), n_in * n_out), n_out, n_in)
    for start in range(0, x.shape[0], _BLOCK):
        n = min(_BLOCK, x.shape[0] - start)
        below = x.ctypes.data + start * x.strides[0]
        row, column = x.strides[0] // 4, x.strides[1] // 4
        for i in range(layers.shape[0]):
            n_in, n_out = layers[i, N_IN], layers[i, N_OUT]
            place = layers[i, OUTPUT] + 4 * start * n_out
            output = carray(floats_at(place), n * n_out)
            if i < n_hidden:
                multiply(
                    *(below, row, column, layers[i, TURNED], n_out, n_in, layers[i, BIAS], 0),
                    *(place, n_out, n, n_out),
                )
                if is_tanh:
                    tanh_in_place(output)
                else:
                    _rectify(output)
            else:
                weight = carray(floats_at(layers[i, WEIGHT]), n_out * n_in)
                bias = carray(floats_at(layers[i, BIAS]), n_out)
                _last_layer(carray(floats_at(below), n * n_in), weight, bias, output)
            below, row, column = place, n_out, 1


@_compiled
def _add_product(
    a: int,
    a_row: int,
    a_k: int,
    b: int,
    b_k: int,
    n_k: int,
    total: int,
    total_row: int,
    n_rows: int,
    n_columns: int,
    zeros: int,
    is_first: bool,
) -> None:
    """Add a product to a total, or replace that by it; see `multiply`.  zeros: n_columns of them."""
    first, first_row = (zeros, 0) if is_first else (total, total_row)
    multiply(*(a, a_row, a_k, b, b_k, n_k, first, first_row, total, total_row, n_rows, n_columns))


@compiled("(f4[:,:], i8[:,::1], i8, b1, f4[::1], f4[:,:], b1)", nogil=True, error_model="numpy")
def backward(
    x: Floats,
    layers: Ints,
    n_hidden: int,
    is_tanh: bool,
    zeros: Floats,
    grad_x: Floats,
    adds: bool,
) -> None:
    """Write the gradients of all layers, from the last gradient of outputs and what `forward` wrote.

    zeros: as many as the widest layer has inputs or outputs.  grad_x [n, n_in]: the gradient of `x` is
    written to it, or with `adds`, added to it; empty if nobody needs it.
    """
    nothing, last = zeros.ctypes.data, layers.shape[0] - 1
    # Without rows, all gradients are zero.
    for start in range(0, max(x.shape[0], 1), _BLOCK):
        n, is_first = min(_BLOCK, x.shape[0] - start), start == 0
        for i in range(last, -1, -1):
            n_in, n_out = layers[i, N_IN], layers[i, N_OUT]
            place = layers[i, GRADIENT] + (4 * start * n_out if i == last else 0)
            gradient = carray(floats_at(place), n * n_out)
            if i < n_hidden:
                output = carray(floats_at(layers[i, OUTPUT] + 4 * start * n_out), n * n_out)
                _scale_by_slope(gradient, output, is_tanh)
            _add_rows(gradient, layers[i], is_first)
            weight = layers[i, WEIGHT]
            if i:
                below, total = layers[i - 1, OUTPUT] + 4 * start * n_in, layers[i, GRAD_WEIGHT]
                _add_product(
                    *(place, 1, n_out, below, n_in, n, total, n_in, n_out, n_in, nothing, is_first)
                )
                # Of this block alone, so that it stays in the cache.
                target = layers[i - 1, GRADIENT]
                _add_product(
                    *(place, n_out, 1, weight, n_in, n_out, target, n_in, n, n_in, nothing, True)
                )
                continue
            # The transpose, as only hidden layers have the number of units for columns.
            below, total = x.ctypes.data + start * x.strides[0], layers[0, TURNED]
            row, column = x.strides[0] // 4, x.strides[1] // 4
            _add_product(
                *(below, column, row, place, n_out, n, total, n_out, n_in, n_out, nothing, is_first)
            )
            if grad_x.size:
                target, row = grad_x.ctypes.data + start * grad_x.strides[0], grad_x.strides[0] // 4
                _add_product(
                    *(place, n_out, 1, weight, n_in, n_out, target, row, n, n_in, nothing, not adds)
                )
    n_in, n_out = layers[0, N_IN], layers[0, N_OUT]
    turned = carray(floats_at(layers[0, TURNED]), n_in * n_out)
    _turn(turned, carray(floats_at(layers[0, GRAD_WEIGHT]), n_out * n_in), n_in, n_out)
