"""Compiled loops of the transforms.

This module imports numba, so it is imported by the functions that need it when they first run. Every
function releases the GIL, walks memory in the order of the columns, and is compiled for
contiguous arrays first and for any strides second. None of them checks shapes: callers do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.compilation import compiled


@compiled(
    "(f4[:,::1], f4[:,::1], b1[:,::1], b1[:,::1], f4[:,::1], f4[::1], f8, f8, f4[:,::1])",
    "(f4[:,:], f4[:,:], b1[:,:], b1[:,:], f4[:,:], f4[:], f8, f8, f4[:,:])",
    nogil=True,
)
def estimate_advantage(
    reward: NDArray[np.float32],
    value: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_value: NDArray[np.float32],
    bootstrap_value: NDArray[np.float32],
    discount: float,
    gae_lambda: float,
    out_advantage: NDArray[np.float32],
) -> None:
    """Write advantages as `parllel.transforms.estimate_advantage` describes them."""
    T, B = reward.shape
    decay = discount * gae_lambda
    trace = np.zeros(B)  # float64: a thousand roundings would show in the return of a long episode
    for t in range(T - 1, -1, -1):
        following = bootstrap_value if t == T - 1 else value[t + 1]
        for b in range(B):
            # Selected, not multiplied by zero: what is not used may be NaN.
            next_value = np.float64(final_value[t, b] if truncated[t, b] else following[b])
            next_value = 0.0 if terminated[t, b] else next_value
            carried = 0.0 if (terminated[t, b] | truncated[t, b]) else decay * trace[b]
            trace[b] = reward[t, b] + discount * next_value - value[t, b] + carried
            out_advantage[t, b] = trace[b]


@compiled(
    "(f4[:,::1], b1[:,::1], b1[:,::1], f4[:,::1], f4[::1], f8, f4[:,::1])",
    "(f4[:,:], b1[:,:], b1[:,:], f4[:,:], f4[:], f8, f4[:,:])",
    nogil=True,
)
def discounted_returns(
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_value: NDArray[np.float32],
    bootstrap_value: NDArray[np.float32],
    discount: float,
    out_return: NDArray[np.float32],
) -> None:
    """Write returns as `parllel.transforms.discounted_returns` describes them."""
    T, B = reward.shape
    following = bootstrap_value.astype(np.float64)
    for t in range(T - 1, -1, -1):
        for b in range(B):
            behind = np.float64(final_value[t, b]) if truncated[t, b] else following[b]
            behind = 0.0 if terminated[t, b] else behind
            following[b] = reward[t, b] + discount * behind
            out_return[t, b] = following[b]


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
    """Write the discounted sum of past rewards of each environment, carried on in `carried` [B]."""
    T, B = reward.shape
    for t in range(T):
        for b in range(B):
            total = discount * carried[b] + reward[t, b]
            out_return[t, b] = total
            total = 0.0 if done[t, b] else total
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
    features = shift.size
    for b in range(start, stop):
        for f in range(features):
            x = (source[t, b, f] + shift[f]) * scale[f]
            x = clip if x > clip else x
            target[t, b, f] = -clip if x < -clip else x


@compiled(
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
    """Write mean and variance over the first dimension; return how many entries there were.

    An empty mask takes all. Two passes: the one-pass formula cancels where the mean is large.
    """
    n, features = batch.shape
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
