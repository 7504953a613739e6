"""One step of a small policy and its critic, from observations to rows of the batch, compiled.

This module imports numba, so it is imported only when the first SmallPolicy is made. SmallPolicy checks
shapes; nothing here does. The GIL is held, because releasing it may take as long as a call.

A block of rows passes through all layers while it is in the L1 cache. The operations on a row do not depend
on the other rows, so results are bit-identical however columns are grouped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.compiled_products import multiply
from parllel.system.compilation import compiled

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 16  # rows that pass through the layers together
SCRATCH = (
    5  # rows of scratch: inputs, two hidden layers alternately, and the outputs of both networks
)
# tanh x = x P(x^2) / Q(x^2), fitted by weighted least squares to a relative error of 2.1e-8; in
# float32 the roundings make it 4e-7. tanh 9 rounds to 1, so there the curve is cut.
_SATURATED = np.float32(9)
_P0, _P1, _P2 = np.float32(0.99999998), np.float32(0.13381025), np.float32(3.4955876e-3)
_P3, _P4 = np.float32(2.0609075e-5), np.float32(1.3354652e-8)
_Q1, _Q2 = np.float32(0.46714341), np.float32(0.025876980)
_Q3, _Q4 = np.float32(3.2856340e-4), np.float32(7.7765543e-7)
_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)
_HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2 * math.pi))

# Divisions by zero give what IEEE 754 says, without a branch.
_compiled = compiled(error_model="numpy")
_contracted = compiled(error_model="numpy", fastmath={"contract"})
_reordered = compiled(error_model="numpy", fastmath={"contract", "reassoc"})


@_contracted
def tanh_in_place(x: Floats) -> None:
    """Replace `x` [n] by its hyperbolic tangent; NaN stays NaN."""
    # math.tanh would be a call per number; this is a handful of vector instructions.
    for i in range(x.size):
        v = x[i]
        # Comparisons rather than min and max, which may turn NaN into a number.
        v = _SATURATED if v > _SATURATED else v
        v = -_SATURATED if v < -_SATURATED else v
        u = v * v
        above = (((_P4 * u + _P3) * u + _P2) * u + _P1) * u + _P0
        below = (((_Q4 * u + _Q3) * u + _Q2) * u + _Q1) * u + _ONE
        x[i] = v * above / below


@_reordered
def _last_layer(x: Floats, n: int, w: Floats, n_in: int, n_out: int, out: Floats) -> None:
    """Write `n` rows of w @ x + bias; `w` is [n_out, n_in] flat, with the bias after it."""
    # Outputs are few, so that vectors are made of inputs here.
    for r in range(n):
        xr = x[r * n_in : (r + 1) * n_in]
        for j in range(n_out):
            wj = w[j * n_in : (j + 1) * n_in]
            y = _ZERO
            for k in range(n_in):
                y += xr[k] * wj[k]
            out[r * n_out + j] = y + w[n_in * n_out + j]


@_compiled
def _network(x: Floats, n: int, sizes: Ints, w: Floats, a: Floats, b: Floats, out: Floats) -> None:
    """Pass `n` rows of `x` through the layers of `w`; `a` and `b` are scratch.

    A hidden layer is its weight [n_in, n_out], flat, and its bias. Its number of units in `sizes` is a
    multiple of COLUMNS: those beyond the network's own have only zeros.
    """
    start, last = 0, sizes.size - 2
    for layer in range(last):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        middle, end = start + n_in * n_out, start + (n_in + 1) * n_out
        weight, bias = w[start:middle].ctypes.data, w[middle:end].ctypes.data
        multiply(
            *(x.ctypes.data, n_in, 1, weight, n_out, n_in, bias, 0),
            *(a.ctypes.data, n_out, n, n_out),
        )
        tanh_in_place(a[: n * n_out])
        x, a, b, start = a, b, a, end
    _last_layer(x, n, w[start:], sizes[last], sizes[last + 1], out)


@_compiled
def _load(observation: NDArray[Any], t: int, first: int, n: int, x: Floats) -> None:
    """Cast `n` observations to rows of `x`."""
    size = observation.shape[2]
    for r in range(n):
        for k in range(size):
            x[r * size + k] = observation[t, first + r, k]


@_compiled
def write_values(
    t: int,
    start: int,
    stop: int,
    observation: NDArray[Any],
    value: NDArray[Any],
    critic: Floats,
    critic_sizes: Ints,
    scratch: Floats,
) -> None:
    """Write the values of columns [start, stop) of row `t`. Arguments are those of `step_categorical`."""
    x, a, b, values = scratch[0], scratch[1], scratch[2], scratch[4]
    for first in range(start, stop, BLOCK):
        n = min(BLOCK, stop - first)
        _load(observation, t, first, n, x)
        _network(x, n, critic_sizes, critic, a, b, values)
        for r in range(n):
            value[t, first + r] = values[r]


@_compiled
def step_categorical(
    t: int,
    start: int,
    stop: int,
    noise: Floats,
    observation: NDArray[Any],
    action: NDArray[Any],
    value: NDArray[Any],
    log_prob: NDArray[Any],
    policy: Floats,
    policy_sizes: Ints,
    critic: Floats,
    critic_sizes: Ints,
    choices: Ints,
    scratch: Floats,
) -> None:
    """Act for columns [start, stop) of row `t`, where an action consists of independent choices.

    choices [2, n]: the number of actions of each choice, and its first action.
    noise [T, B, all actions]: standard Gumbel.  observation [rows, B, n_inputs].  action [rows, B,
    choices], value, log_prob [rows, B]: written.  There are T rows or more.  policy, critic: layers,
    flat, as `_network` wants them.  scratch [SCRATCH, BLOCK * widest layer].
    """
    x, a, b, logits, values = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    n_logits = policy_sizes[-1]
    for first in range(start, stop, BLOCK):
        n = min(BLOCK, stop - first)
        _load(observation, t, first, n, x)
        _network(x, n, policy_sizes, policy, a, b, logits)
        _network(x, n, critic_sizes, critic, a, b, values)
        for r in range(n):
            column, total, offset = first + r, _ZERO, 0
            row = logits[r * n_logits : (r + 1) * n_logits]
            for i in range(choices.shape[1]):
                size = choices[0, i]
                best = _argmax_of_sum(row, noise[t, column], offset, size)
                total += _log_softmax(row[offset : offset + size], best)
                action[t, column, i] = choices[1, i] + best
                offset += size
            log_prob[t, column] = total
            value[t, column] = values[r]


@_compiled
def _argmax_of_sum(logits: Floats, noise: Floats, offset: int, size: int) -> int:
    """Return the first largest of `size` sums that start at `offset`."""
    # The first of equal ones, as torch's argmax has it, so that both draw the same action.
    best, top = 0, logits[offset] + noise[offset]
    for j in range(1, size):
        candidate = logits[offset + j] + noise[offset + j]
        if candidate > top:
            best, top = j, candidate
    return best


@_compiled
def _log_softmax(logits: Floats, chosen: int) -> Any:
    """Return the log probability of one of the logits."""
    # The maximum is subtracted below, because exp overflows in float32 above 88.
    most = logits[0]
    for j in range(1, logits.size):
        most = max(most, logits[j])
    total = _ZERO
    for j in range(logits.size):
        total += math.exp(logits[j] - most)
    return logits[chosen] - most - math.log(total)


@_compiled
def step_gaussian(
    t: int,
    start: int,
    stop: int,
    noise: Floats,
    observation: NDArray[Any],
    action: NDArray[Any],
    value: NDArray[Any],
    log_prob: NDArray[Any],
    policy: Floats,
    policy_sizes: Ints,
    critic: Floats,
    critic_sizes: Ints,
    log_std: Floats,
    scratch: Floats,
) -> None:
    """Like `step_categorical`, but draw actions from a normal distribution around the policy's outputs.

    noise [T, B, n]: standard normal.  action [rows, B, n].  log_std [n].
    """
    x, a, b, means, values = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    for first in range(start, stop, BLOCK):
        n = min(BLOCK, stop - first)
        _load(observation, t, first, n, x)
        _network(x, n, policy_sizes, policy, a, b, means)
        _network(x, n, critic_sizes, critic, a, b, values)
        for r in range(n):
            column, total = first + r, _ZERO
            for i in range(log_std.size):
                mean = means[r * log_std.size + i]
                drawn = mean + math.exp(log_std[i]) * noise[t, column, i]
                action[t, column, i] = drawn
                # From the rounded action, as the learner will read it.
                scaled = (drawn - mean) * math.exp(-log_std[i])
                total += -_HALF * scaled * scaled - log_std[i] - _HALF_LOG_TWO_PI
            log_prob[t, column] = total
            value[t, column] = values[r]
