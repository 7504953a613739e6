"""Compiled parts of an update of SAC and TD3: sampled actions, losses, and their gradients.

This module imports numba, so it is imported by the first update. Callers check the shapes. n is the number
of transitions, K of critics, A of elements in an action. What is stored is float32; the arithmetic of a
transition is float64, which costs nothing next to the networks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_LOG_FOUR = math.log(4.0)


@compiled(
    "(f4[:,::1], f4[:,::1], f8, f8, f4[:,:], f4[::1])",
    nogil=True,
    error_model="numpy",
)
def squashed_sample(
    outputs: Floats,
    noise: Floats,
    min_log_std: float,
    max_log_std: float,
    unit: Floats,
    log_prob: Floats,
) -> None:
    """Write unit actions [n, A] and the logs of their densities [n].

    outputs [n, 2 A]: means, then log standard deviations, of a `SquashedGaussian`.
    """
    n, A = noise.shape
    for i in range(n):
        total = 0.0
        for j in range(A):
            mean, log_std = np.float64(outputs[i, j]), np.float64(outputs[i, A + j])
            epsilon = np.float64(noise[i, j])
            # Written so that a NaN stays one.
            if log_std < min_log_std:
                log_std = min_log_std
            elif log_std > max_log_std:
                log_std = max_log_std
            u = mean + math.exp(log_std) * epsilon
            # Of exp(-2 |u|), both tanh(u) and log(1 - tanh(u)^2) follow, without cancellation.
            tail = math.exp(-2.0 * abs(u))
            y = (1.0 - tail) / (1.0 + tail)
            unit[i, j] = y if u >= 0.0 else -y
            slope = _LOG_FOUR - 2.0 * abs(u) - 2.0 * math.log(1.0 + tail)
            total -= 0.5 * epsilon * epsilon + log_std + _HALF_LOG_TWO_PI + slope
        log_prob[i] = total


@compiled(
    "(f4[:,::1], f4[:,::1], f4[:,:], f4[:,::1], f8, f8, f8, f8, f4[:,::1])",
    nogil=True,
    error_model="numpy",
)
def squashed_gradient(
    outputs: Floats,
    noise: Floats,
    unit: Floats,
    grad_unit: Floats,
    log_prob_slope: float,
    min_log_std: float,
    max_log_std: float,
    scale: float,
    grad_outputs: Floats,
) -> None:
    """Write the gradient with respect to the outputs [n, 2 A] of `squashed_sample`.

    grad_unit [n, A]: gradient of the loss with respect to unit actions, before `scale`.
    log_prob_slope: its derivative in each log density, before `scale`.
    """
    n, A = noise.shape
    for i in range(n):
        for j in range(A):
            y = np.float64(unit[i, j])
            log_std = np.float64(outputs[i, A + j])
            inside = not (log_std < min_log_std or log_std > max_log_std)
            bounded = min(max(log_std, min_log_std), max_log_std)
            # d log p / du = 2 tanh(u), from the change of variables alone: the noise does not depend on u.
            grad_u = log_prob_slope * 2.0 * y + grad_unit[i, j] * (1.0 - y * y)
            grad_outputs[i, j] = scale * grad_u
            spread = math.exp(bounded) * noise[i, j]
            grad_outputs[i, A + j] = (
                scale * (grad_u * spread - log_prob_slope) if inside else np.float32(0)
            )


@compiled(
    "(f4[:,::1], f4[::1], f8, f4[::1], f4[::1], f4[::1])",
    nogil=True,
    error_model="numpy",
)
def soft_target(
    next_values: Floats,
    next_log_prob: Floats,
    temperature: float,
    reward: Floats,
    discount: Floats,
    target: Floats,
) -> None:
    """Write reward + discount * (min_k Q_k - temperature * log prob), [n]; all values [K, n]."""
    K, n = next_values.shape
    for i in range(n):
        target[i] = reward[i]
        # What follows the end of an episode may be anything, even NaN.
        if discount[i] > 0.0:
            least = np.float64(next_values[0, i])
            for k in range(1, K):
                other = np.float64(next_values[k, i])
                # A NaN stays, whichever critic it is from.
                least = other if other < least or other != other else least
            value = least - temperature * next_log_prob[i]
            target[i] = reward[i] + discount[i] * value


@compiled(
    "(f4[:,::1], f4[::1], f4[::1], f4[:,::1], f4[::1])",
    nogil=True,
    error_model="numpy",
)
def critic_loss(
    values: Floats, target: Floats, weight: Floats, grad_values: Floats, errors: Floats
) -> Any:
    """Return the critics' loss and mean value, and write the gradient [K, n] and mean absolute errors [n]."""
    K, n = values.shape
    loss, total = 0.0, 0.0
    for i in range(n):
        size = 0.0
        for k in range(K):
            error = np.float64(values[k, i]) - target[i]
            loss += weight[i] * error * error
            grad_values[k, i] = weight[i] * error / n
            total += values[k, i]
            size += abs(error)
        errors[i] = size / K
    return 0.5 * loss / n, total / (K * n)


@compiled("(f4[:,::1], i8[:,::1], i8[::1])", nogil=True, error_model="numpy")
def smallest_values(values: Floats, rows: Ints, counts: Ints) -> Any:
    """Return the mean over n of min_k Q_k, and list the rows [K, n] in which each critic is the smallest."""
    K, n = values.shape
    counts[:] = 0
    total = 0.0
    for i in range(n):
        best = 0
        for k in range(1, K):
            if values[k, i] < values[best, i] or values[k, i] != values[k, i]:
                best = k
        rows[best, counts[best]] = i
        counts[best] += 1
        total += values[best, i]
    return total / n


@compiled("(f4[::1], f4, f4[:,::1], i8[::1], b1, f4[:,::1])", nogil=True, error_model="numpy")
def last_hidden_gradient(
    weight: Floats, slope: float, output: Floats, rows: Ints, tanh: bool, gradient: Floats
) -> None:
    """Write the gradient of the last hidden layer before its activation, for some rows of the batch.

    weight [units]: of the last layer, which has one output, and `slope` the gradient of that output.
    output [n, units]: of the hidden layer.  gradient [len(rows), units].
    """
    for j in range(rows.size):
        y, g = output[rows[j]], gradient[j]
        if tanh:
            for i in range(weight.size):
                g[i] = slope * weight[i] * (np.float32(1) - y[i] * y[i])
        else:
            for i in range(weight.size):
                g[i] = slope * weight[i] if y[i] > 0 else np.float32(0)


@compiled("(f4[:,::1], f4[:,::1], i8[::1], b1)", nogil=True, error_model="numpy")
def scale_rows_by_slope(gradient: Floats, output: Floats, rows: Ints, tanh: bool) -> None:
    """Multiply the gradient [len(rows), units] of a hidden layer by its slope, from its output [n, units]."""
    for j in range(rows.size):
        y, g = output[rows[j]], gradient[j]
        if tanh:
            for i in range(g.size):
                g[i] *= np.float32(1) - y[i] * y[i]
        else:
            for i in range(g.size):
                g[i] = g[i] if y[i] > 0 else np.float32(0)


@compiled("(f4[:,::1], i8[::1], f4[:,::1])", nogil=True, error_model="numpy")
def put_columns(source: Floats, rows: Ints, target: Floats) -> None:
    """Copy the columns of `source` [A, len(rows)] to rows of `target` [n, A]."""
    for j in range(rows.size):
        for i in range(source.shape[0]):
            target[rows[j], i] = source[i, j]
