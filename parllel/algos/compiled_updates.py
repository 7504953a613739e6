"""Compiled parts of a PPO update: the loss with its gradients, activations, and the clipped step of Adam.

This module imports numba, so it is imported by the first update. Callers check the shapes. N is the number of
steps, K of agents, D of dimensions or choices of an action, and L of logits. What is stored is float32; the
arithmetic of a step is float64, which costs nothing next to the networks.
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
Bools = NDArray[np.bool_]

# Sums over steps that a loss writes: columns of `sums`.
POLICY, VALUE, ENTROPY, KL, CLIPPED, COUNT = range(6)
N_SUMS = 6
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# Rows that are added up in float32, three times as fast as in float64. More rows would lose digits.
_ROWS = 64


# Divisions by zero give what IEEE 754 says: losses that are not finite are refused by callers.
@compiled(error_model="numpy")
def _step_terms(
    log_prob: Any,
    value: Any,
    old_log_prob: Any,
    old_value: Any,
    advantage: Any,
    return_: Any,
    ratio_clip: Any,
    value_clip: Any,
) -> tuple[Any, ...]:
    """Return (surrogate, its slope in log_prob, half squared error, its slope in value, log ratio, ratio)."""
    # Of numbers only: each array among the arguments would be counted as used and freed for every step, which
    # takes three times as long as the arithmetic.
    log_ratio = log_prob - old_log_prob
    ratio = math.exp(log_ratio)
    clipped = min(max(ratio, 1.0 - ratio_clip), 1.0 + ratio_clip)
    surrogate, bounded = ratio * advantage, clipped * advantage
    slope = surrogate
    if clipped != ratio and bounded < surrogate:
        # The bound is worse, and does not depend on the policy.
        surrogate, slope = bounded, 0.0
    error = value - return_
    half_error, value_slope = 0.5 * error * error, error
    if value_clip < math.inf:
        moved = min(max(value - old_value, -value_clip), value_clip)
        if moved != value - old_value:
            other = old_value + moved - return_
            if other * other > error * error:
                half_error, value_slope = 0.5 * other * other, 0.0
            elif other * other == error * error:
                value_slope = (
                    0.5 * error
                )  # as autograd shares the gradient of equal arguments of max
    # min and max drop NaN, which must reach the loss.
    if ratio != ratio:
        surrogate = slope = ratio
    return surrogate, slope, half_error, value_slope, log_ratio, ratio


@compiled(
    f"({', '.join(['f4[:,:]'] * 8)}, b1[:,:], f8[::1], f8[::1], f4[:,::1], f4[:,::1], f8[:,::1])",
    nogil=True,
    error_model="numpy",
)
def ppo_loss(
    log_prob: Floats,
    entropy: Floats,
    value: Floats,
    old_log_prob: Floats,
    old_value: Floats,
    advantage: Floats,
    return_: Floats,
    weight: Floats,
    valid: Bools,
    coefficients: Doubles,
    scale: Doubles,
    grad_log_prob: Floats,
    grad_value: Floats,
    sums: Doubles,
) -> None:
    """Write the sums of the loss's terms, and the gradients with respect to log probabilities and values.

    All [N, K]; `weight` and `valid` may be empty, for none.  coefficients: ratio_clip, value_clip (inf for
    none), value_loss_coeff.  scale [K]: factor of an agent's sums in the loss.  sums [K, N_SUMS].  The
    gradient of the entropy is a constant, which is left to the caller.
    """
    N, K = log_prob.shape
    for k in range(K):
        for i in range(N_SUMS):
            sums[k, i] = 0.0
    ratio_clip, value_clip, value_coeff = coefficients[0], coefficients[1], coefficients[2]
    for n in range(N):
        for k in range(K):
            if valid.size and not valid[n, k]:
                # Nothing of an invalid step is read: it may hold NaN.
                grad_log_prob[n, k] = 0.0
                grad_value[n, k] = 0.0
                continue
            surrogate, slope, half_error, value_slope, log_ratio, ratio = _step_terms(
                np.float64(log_prob[n, k]),
                np.float64(value[n, k]),
                np.float64(old_log_prob[n, k]),
                np.float64(old_value[n, k]),
                np.float64(advantage[n, k]),
                np.float64(return_[n, k]),
                ratio_clip,
                value_clip,
            )
            if weight.size:
                surrogate *= weight[n, k]
                slope *= weight[n, k]
            grad_log_prob[n, k] = -scale[k] * slope
            grad_value[n, k] = scale[k] * value_coeff * value_slope
            sums[k, POLICY] += surrogate
            sums[k, VALUE] += half_error
            sums[k, ENTROPY] += entropy[n, k]
            sums[k, KL] += ratio - 1.0 - log_ratio
            sums[k, CLIPPED] += abs(ratio - 1.0) > ratio_clip
            sums[k, COUNT] += 1.0


@compiled(
    f"(f4[:,::1], b1[:,::1], f4[::1], i8[:,::1], i8[:,::1], {', '.join(['f4[::1]'] * 5)}, b1[::1], f8[::1],"
    " f8, f4[:,::1], f4[::1], f8[:,::1], f8[:,::1])",
    nogil=True,
    error_model="numpy",
)
def ppo_categorical(
    logits: Floats,
    allowed: Bools,
    value: Floats,
    choices: Ints,
    action: Ints,
    old_log_prob: Floats,
    old_value: Floats,
    advantage: Floats,
    return_: Floats,
    weight: Floats,
    valid: Bools,
    coefficients: Doubles,
    scale: float,
    grad_logits: Floats,
    grad_value: Floats,
    sums: Doubles,
    scratch: Doubles,
) -> int:
    """Write the sums of the loss's terms, and the gradients with respect to logits and values.

    logits [N, L], action [N, D], the rest of the batch [N]; `weight`, `valid` and `allowed` [N, L] may be
    empty, for none.  choices [2, D]: of how many actions, and the first of them.  coefficients: ratio_clip,
    value_clip (inf for none), value_loss_coeff, entropy_loss_coeff.  scale: factor of a step in the loss.
    sums [K, N_SUMS]: of K agents with N / K rows each, one after the other.  scratch [2, L].

    Returns the first row with an action that is not one of its choices, or -1. What was written is then of no
    use.
    """
    n_agents = sums.shape[0]
    n_rows = logits.shape[0] // n_agents
    log_p, p = scratch[0], scratch[1]
    entropy_slope = -scale * coefficients[3]
    for k in range(n_agents):
        sums[k, :] = 0.0
        for n in range(k * n_rows, (k + 1) * n_rows):
            if valid.size and not valid[n]:
                # Nothing of an invalid step is read: it may hold NaN, and an action of no space.
                grad_value[n] = 0.0
                for j in range(logits.shape[1]):
                    grad_logits[n, j] = 0.0
                continue
            log_prob, entropy, offset = 0.0, 0.0, 0
            for i in range(choices.shape[1]):
                size = choices[0, i]
                chosen = action[n, i] - choices[1, i]
                if chosen < 0 or chosen >= size:
                    return n
                most = -np.inf
                for j in range(offset, offset + size):
                    logit = np.float64(logits[n, j])
                    if allowed.size and not allowed[n, j]:
                        logit = -np.inf
                    log_p[j] = logit
                    # A NaN stays: the comparison with one is false either way.
                    most = most if most >= logit else logit
                total = 0.0
                for j in range(offset, offset + size):
                    log_p[j] -= most
                    p[j] = math.exp(log_p[j])
                    total += p[j]
                log_total = math.log(total)
                for j in range(offset, offset + size):
                    log_p[j] -= log_total
                    p[j] /= total
                    # An action that is masked by a logit of -inf adds nothing: 0 * -inf would be NaN.
                    if p[j] > 0.0:
                        entropy -= p[j] * log_p[j]
                log_prob += log_p[offset + chosen]
                offset += size
            surrogate, slope, half_error, value_slope, log_ratio, ratio = _step_terms(
                log_prob,
                np.float64(value[n]),
                np.float64(old_log_prob[n]),
                np.float64(old_value[n]),
                np.float64(advantage[n]),
                np.float64(return_[n]),
                coefficients[0],
                coefficients[1],
            )
            if weight.size:
                surrogate *= weight[n]
                slope *= weight[n]
            log_prob_slope = -scale * slope
            grad_value[n] = scale * coefficients[2] * value_slope
            offset = 0
            for i in range(choices.shape[1]):
                size = choices[0, i]
                own_entropy = 0.0
                for j in range(offset, offset + size):
                    if p[j] > 0.0:
                        own_entropy -= p[j] * log_p[j]
                chosen = offset + action[n, i] - choices[1, i]
                for j in range(offset, offset + size):
                    # Rounded once: a choice of one action has a gradient of exactly zero, which Adam would
                    # otherwise make large.
                    slope_j = log_prob_slope * ((j == chosen) - p[j])
                    if p[j] > 0.0:
                        slope_j -= entropy_slope * p[j] * (log_p[j] + own_entropy)
                    grad_logits[n, j] = slope_j
                    if allowed.size and not allowed[n, j]:
                        grad_logits[n, j] = 0.0
                offset += size
            sums[k, POLICY] += surrogate
            sums[k, VALUE] += half_error
            sums[k, ENTROPY] += entropy
            sums[k, KL] += ratio - 1.0 - log_ratio
            sums[k, CLIPPED] += abs(ratio - 1.0) > coefficients[0]
            sums[k, COUNT] += 1.0
    return -1


@compiled(
    f"(f4[:,:], f4[:,:], f4[::1], f4[:,::1], {', '.join(['f4[::1]'] * 5)}, b1[::1], f8[::1],"
    " f8, f4[:,:], f4[:,:], f4[::1], f8[:,::1], f8[::1])",
    nogil=True,
    error_model="numpy",
)
def ppo_gaussian(
    mean: Floats,
    log_std: Floats,
    value: Floats,
    action: Floats,
    old_log_prob: Floats,
    old_value: Floats,
    advantage: Floats,
    return_: Floats,
    weight: Floats,
    valid: Bools,
    coefficients: Doubles,
    scale: float,
    grad_mean: Floats,
    grad_log_std: Floats,
    grad_value: Floats,
    sums: Doubles,
    scratch: Doubles,
) -> None:
    """Write the sums of the loss's terms, and the gradients with respect to means, deviations and values.

    mean, action [N, D].  log_std: [N, D], or [1, D] for all steps.  weight, valid, coefficients, scale, sums:
    as `ppo_categorical`.  scratch [D].
    """
    D, n_agents = mean.shape[1], sums.shape[0]
    n_rows = mean.shape[0] // n_agents
    entropy_slope = -scale * coefficients[3]
    shared = log_std.shape[0] == 1
    scratch[:] = 0.0
    for k in range(n_agents):
        sums[k, :] = 0.0
        for n in range(k * n_rows, (k + 1) * n_rows):
            row = 0 if shared else n
            if valid.size and not valid[n]:
                grad_value[n] = 0.0
                for i in range(D):
                    grad_mean[n, i] = 0.0
                    if not shared:
                        grad_log_std[n, i] = 0.0
                continue
            log_prob, entropy = 0.0, 0.0
            for i in range(D):
                spread = np.float64(log_std[row, i])
                scaled = (np.float64(action[n, i]) - mean[n, i]) * math.exp(-spread)
                log_prob -= 0.5 * scaled * scaled + spread + _HALF_LOG_TWO_PI
                entropy += spread + 0.5 + _HALF_LOG_TWO_PI
            surrogate, slope, half_error, value_slope, log_ratio, ratio = _step_terms(
                log_prob,
                np.float64(value[n]),
                np.float64(old_log_prob[n]),
                np.float64(old_value[n]),
                np.float64(advantage[n]),
                np.float64(return_[n]),
                coefficients[0],
                coefficients[1],
            )
            if weight.size:
                surrogate *= weight[n]
                slope *= weight[n]
            log_prob_slope = -scale * slope
            grad_value[n] = scale * coefficients[2] * value_slope
            for i in range(D):
                inverse = math.exp(-np.float64(log_std[row, i]))
                scaled = (np.float64(action[n, i]) - mean[n, i]) * inverse
                grad_mean[n, i] = log_prob_slope * scaled * inverse
                slope_i = log_prob_slope * (scaled * scaled - 1.0) + entropy_slope
                if shared:
                    scratch[i] += slope_i
                else:
                    grad_log_std[n, i] = slope_i
            sums[k, POLICY] += surrogate
            sums[k, VALUE] += half_error
            sums[k, ENTROPY] += entropy
            sums[k, KL] += ratio - 1.0 - log_ratio
            sums[k, CLIPPED] += abs(ratio - 1.0) > coefficients[0]
            sums[k, COUNT] += 1.0
    if shared:
        for i in range(D):
            grad_log_std[0, i] = scratch[i]


@compiled("(f4[:,::1], f4[:,::1])", nogil=True)
def rectify(x: Floats, out: Floats) -> None:
    """Write max(x, 0) [n, units] to `out`, which may be `x`. A NaN stays one."""
    zero = np.float32(0)
    source, target = x.reshape(-1), out.reshape(-1)
    # Two loops, as one over arrays that may overlap is not vectorised. Zero is added so that each element is
    # written: where the compiler sees that nothing changes, it writes under a mask, which takes six times as
    # long on some processors.
    if x.ctypes.data == out.ctypes.data:
        for i in range(target.size):
            target[i] = max(target[i], zero) + zero
    else:
        for i in range(target.size):
            target[i] = max(source[i], zero) + zero


@compiled()
def _move_to(totals: Any, sums: Any) -> None:
    """Add sums to their totals, and begin them again."""
    for i in range(totals.size):
        totals[i] += sums[i]
        sums[i] = np.float32(0)


@compiled()
def _round(totals: Any, sums: Any) -> None:
    """Write totals as float32."""
    # numba takes five seconds to compile `sums[:] = totals`, for arrays of two types.
    for i in range(totals.size):
        sums[i] = totals[i]


@compiled("(f4[:,::1], f4[:,::1], f4[::1], f8[::1])", nogil=True, fastmath={"contract"})
def scale_by_tanh_slope(
    gradient: Floats, output: Floats, grad_bias: Floats, totals: Doubles
) -> None:
    """Multiply the gradient [n, units] of a tanh by its slope 1 - y^2, and write its sums over rows.

    output [n, units]: y.  grad_bias [units]: the sums.  totals [units]: scratch.
    """
    grad_bias[:] = 0
    totals[:] = 0
    for n in range(gradient.shape[0]):
        row, y = gradient[n], output[n]
        for i in range(row.size):
            slope = row[i] * (np.float32(1) - y[i] * y[i])
            row[i] = slope
            grad_bias[i] += slope
        if n % _ROWS == _ROWS - 1:
            _move_to(totals, grad_bias)
    _move_to(totals, grad_bias)
    _round(totals, grad_bias)


@compiled("(f4[:,::1], f4[:,::1], f4[::1], f8[::1])", nogil=True)
def scale_by_relu_slope(
    gradient: Floats, output: Floats, grad_bias: Floats, totals: Doubles
) -> None:
    """As `scale_by_tanh_slope`, of a rectifier."""
    grad_bias[:] = 0
    totals[:] = 0
    for n in range(gradient.shape[0]):
        row, y = gradient[n], output[n]
        for i in range(row.size):
            # Selected, not multiplied: the gradient of what is cut is 0 even where the other is infinite.
            slope = row[i] if y[i] > 0 else np.float32(0)
            row[i] = slope
            grad_bias[i] += slope
        if n % _ROWS == _ROWS - 1:
            _move_to(totals, grad_bias)
    _move_to(totals, grad_bias)
    _round(totals, grad_bias)


@compiled("(f4[::1], i8[::1], f8[::1])", nogil=True, fastmath={"contract", "reassoc"})
def gradient_norms(gradient: Floats, ends: Ints, norms: Doubles) -> None:
    """Write the Euclidean norm of each part of a flat gradient; part k ends before `ends[k]`."""
    start = 0
    for k in range(ends.size):
        square, part = 0.0, gradient[start : ends[k]]
        for i in range(part.size):
            # float64, so that a large float32 does not overflow when it is squared.
            square += np.float64(part[i]) * np.float64(part[i])
        norms[k] = math.sqrt(square)
        start = ends[k]


@compiled(
    "(f4[::1], f4[::1], f4[::1], f4[::1], i8[::1], f8[::1], f8, f8, f8, f8, f8)",
    nogil=True,
    error_model="numpy",
    fastmath={"contract"},
)
def adam_step(
    parameter: Floats,
    gradient: Floats,
    mean: Floats,
    square: Floats,
    ends: Ints,
    factors: Doubles,
    step_size: float,
    correction: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Take a step of Adam (Kingma and Ba 2015, algorithm 1) with each part's gradient times its factor.

    step_size: learning rate / (1 - beta1^t).  correction: 1 / sqrt(1 - beta2^t).
    """
    start = 0
    new1, new2 = np.float32(1 - beta1), np.float32(1 - beta2)
    old2 = np.float32(beta2)
    rate, corrected, least = np.float32(step_size), np.float32(correction), np.float32(epsilon)
    for k in range(ends.size):
        factor = np.float32(factors[k])
        # Slices, since the compiler vectorises only loops whose indices cannot be negative.
        p, g = parameter[start : ends[k]], gradient[start : ends[k]]
        m, v = mean[start : ends[k]], square[start : ends[k]]
        for i in range(p.size):
            scaled = g[i] * factor
            m[i] += new1 * (scaled - m[i])
            v[i] = old2 * v[i] + new2 * scaled * scaled
            p[i] -= rate * m[i] / (np.sqrt(v[i]) * corrected + least)
        start = ends[k]


@compiled("(f4[::1], f4[::1], f8)", nogil=True, fastmath={"contract"})
def move_towards(target: Floats, source: Floats, tau: float) -> None:
    """Move `target` [n] towards `source` [n] by the share tau: Polyak averaging of parameters."""
    share = np.float32(tau)
    kept = np.float32(1) - share
    for i in range(target.size):
        # A sum of two products and not target + tau * difference, so that tau = 1 copies exactly.
        target[i] = kept * target[i] + share * source[i]
