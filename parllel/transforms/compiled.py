"""Compiled loops of the transforms.

Importing this module imports numba, so functions import it when they are called. Each loop releases the GIL
and runs over the columns of one row after the other, as they lie in memory. The first signature is for
contiguous arrays, where the compiler can vectorise; the second for any strides. Callers check the shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled


@compiled(
    # None is compiled away: advantages, V-trace and returns are three loops in machine code.
    "(f4[:,::1], f4[:,::1], none, none, b1[:,::1], b1[:,::1], f4[:,::1], f4[::1],"
    " f8, f8, f8, f8, f4[:,::1], none)",
    "(f4[:,::1], f4[:,::1], f4[:,::1], f4[:,::1], b1[:,::1], b1[:,::1], f4[:,::1], f4[::1],"
    " f8, f8, f8, f8, f4[:,::1], f4[:,::1])",
    "(f4[:,::1], none, none, none, b1[:,::1], b1[:,::1], f4[:,::1], f4[::1],"
    " f8, f8, f8, f8, none, f4[:,::1])",
    "(f4[:,:], f4[:,:], none, none, b1[:,:], b1[:,:], f4[:,:], f4[:],"
    " f8, f8, f8, f8, f4[:,:], none)",
    "(f4[:,:], f4[:,:], f4[:,:], f4[:,:], b1[:,:], b1[:,:], f4[:,:], f4[:],"
    " f8, f8, f8, f8, f4[:,:], f4[:,:])",
    "(f4[:,:], none, none, none, b1[:,:], b1[:,:], f4[:,:], f4[:], f8, f8, f8, f8, none, f4[:,:])",
    nogil=True,
)
def sum_td_errors(
    reward: NDArray[np.float32],
    value: NDArray[np.float32] | None,
    log_prob: NDArray[np.float32] | None,
    behaviour_log_prob: NDArray[np.float32] | None,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_value: NDArray[np.float32],
    bootstrap_value: NDArray[np.float32],
    discount: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
    out_advantage: NDArray[np.float32] | None,
    out_return: NDArray[np.float32] | None,
) -> None:
    """Write sums of temporal-difference errors: advantages, and the returns of a value function.

    The formulas are those of `parllel.transforms.vtrace`. GAE is the case of two equal policies,
    without log probabilities. Discounted returns are GAE with a lambda of 1 and values of 0,
    without `value`. For GAE only the advantages are written, because its returns are sums of
    float32; for discounted returns, only the returns.
    """
    T, B = reward.shape
    # The sums as a recursion, A_t = delta_t + discount * gae_lambda * A_(t+1), from the last row.
    decay = discount * gae_lambda
    excess = np.zeros(B)  # float64: in float32 the roundings of a thousand steps would add up
    if value is None:
        # Not `excess[:] = bootstrap_value`, which numba takes seconds to compile.
        for b in range(B):
            excess[b] = bootstrap_value[b]
    for t in range(T - 1, -1, -1):
        following = bootstrap_value
        if value is not None:
            following = bootstrap_value if t == T - 1 else value[t + 1]
        for b in range(B):
            # Selected, not multiplied by a mask: values that do not count may be NaN, and 0 * NaN is NaN.
            if value is None:  # the return of the row after holds the rest
                next_value = np.float64(final_value[t, b]) if truncated[t, b] else 0.0
            else:
                next_value = np.float64(final_value[t, b] if truncated[t, b] else following[b])
            next_value = 0.0 if terminated[t, b] else next_value
            carried = 0.0 if (terminated[t, b] | truncated[t, b]) else decay * excess[b]
            error = np.float64(reward[t, b]) + discount * next_value
            if value is not None:
                error -= value[t, b]
            advantage = error + carried
            if log_prob is None or behaviour_log_prob is None:
                excess[b] = advantage
            else:
                ratio = np.exp(np.float64(log_prob[t, b]) - np.float64(behaviour_log_prob[t, b]))
                # In this order a ratio of NaN passes, which would otherwise look like the clip.
                rho = rho_clip if ratio > rho_clip else ratio
                c = c_clip if ratio > c_clip else ratio
                excess[b] = rho * error + c * carried
            if out_advantage is not None:
                out_advantage[t, b] = advantage
            if out_return is not None:
                out_return[t, b] = excess[b] if value is None else value[t, b] + excess[b]


@compiled(
    "(f4[:,::1], b1[:,::1], b1[:,::1], f8, f8[::1], f8[:,::1])",
    "(f4[:,:], b1[:,:], b1[:,:], f8, f8[::1], f8[:,::1])",
    nogil=True,
)
def running_returns(
    reward: NDArray[np.float32],
    done: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    discount: float,
    carried: NDArray[np.float64],
    out_return: NDArray[np.float64],
) -> None:
    """Write the discounted sums of past rewards, starting from `carried` [B], which is updated."""
    T, B = reward.shape
    for t in range(T):
        for b in range(B):
            total = discount * carried[b] + reward[t, b]
            # Before the reset: the whole return of an episode belongs to the statistics too.
            out_return[t, b] = total
            total = 0.0 if done[t, b] else total
            # A row that is not valid holds no step: the sum must not decay in it.
            carried[b] = total if valid[t, b] else carried[b]


@compiled(
    "(f4[:,:,::1], f4[:,:,::1], i8, i8, i8, f4[::1], f4[::1], f4)",
    "(f4[:,:,:], f4[:,:,:], i8, i8, i8, f4[::1], f4[::1], f4)",
    nogil=True,
)
def normalize_row(
    source: NDArray[np.float32],
    target: NDArray[np.float32],
    t: int,
    start: int,
    stop: int,
    shift: NDArray[np.float32],
    scale: NDArray[np.float32],
    clip: float,
) -> None:
    """Write `(source + shift) * scale`, clipped to [-clip, clip], into cells [t, start:stop]."""
    # Whole arrays with indices, as slices made in Python would be two new objects for every row.
    features = shift.size
    for b in range(start, stop):
        for f in range(features):
            x = (source[t, b, f] + shift[f]) * scale[f]
            # In this order NaN passes, as it does in numpy's clip.
            x = clip if x > clip else x
            target[t, b, f] = -clip if x < -clip else x


@compiled(
    # No signature with strides: `RunningMeanStd.update` passes contiguous arrays only.
    "i8(f4[:,::1], b1[::1], f8[::1], f8[::1])",
    "i8(f8[:,::1], b1[::1], f8[::1], f8[::1])",
    nogil=True,
)
def moments(
    batch: NDArray[Any],
    mask: NDArray[np.bool_],
    out_mean: NDArray[np.float64],
    out_var: NDArray[np.float64],
) -> int:
    """Write mean and variance over the first dimension; return the number of entries.

    mask: [n] bool, or empty to take all entries.

    Takes two passes over the data, because the one-pass formula loses precision where the mean is
    large.
    """
    n, features = batch.shape
    # A compiled signature has no None, so an empty array stands for "no mask".
    everything = mask.size == 0
    count = 0
    out_mean[:] = 0.0
    out_var[:] = 0.0
    for i in range(n):
        if everything or mask[i]:
            count += 1
            for f in range(features):
                out_mean[f] += batch[i, f]
    if count == 0:
        return 0
    for f in range(features):
        out_mean[f] /= count
    for i in range(n):
        if everything or mask[i]:
            for f in range(features):
                deviation = batch[i, f] - out_mean[f]
                out_var[f] += deviation * deviation
    for f in range(features):
        out_var[f] /= count
    return count
