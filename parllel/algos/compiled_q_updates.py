"""Compiled parts of updates of action values: targets, loss and gradients.

This module imports numba, so it is imported by the first update. Callers check the shapes. n is the number of
transitions, A of actions. What is stored is float32; the arithmetic of a transition is float64.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Sums over transitions that a loss writes.
LOSS, VALUE, TARGET, ERROR = range(4)
N_SUMS = 4


@compiled(
    "(f4[:,::1], f4[::1], f4[:,::1], f4[::1], f4[:,::1], b1[:,::1], i8[::1], f4[::1], f4[::1], f4[::1],"
    " i8, f8, f8, f4[:,::1], f4[::1], f4[::1], f8[::1])",
    nogil=True,
    error_model="numpy",
)
def q_loss(
    values: Floats,
    state: Floats,
    next_target: Floats,
    next_target_state: Floats,
    next_online: Floats,
    allowed: Bools,
    action: Ints,
    reward: Floats,
    discount: Floats,
    weight: Floats,
    start: int,
    delta: float,
    scale: float,
    grad_values: Floats,
    grad_state: Floats,
    errors: Floats,
    sums: Doubles,
) -> int:
    """Write the sums of the loss's terms, the gradients of the networks' outputs, and the absolute errors.

    values, next_target, next_online [n, A]: outputs of the online network, of the target network at the next
    observation, and of the online network there, which chooses the action (van Hasselt et al. 2016, eq. 4);
    next_online is empty to let the target network choose.  state, next_target_state [n]: values of states of
    duelling networks, whose other outputs are advantages; empty for none.  allowed [n, A]: actions allowed at
    the next observation; empty for all.  action, reward, discount, weight, errors [n].  start: the first
    action.  delta: bound of the gradient of the Huber loss; inf for half the squared error.  scale: factor of
    a transition in the loss.  grad_values [n, A], grad_state [n] or empty.  sums [N_SUMS].

    Returns the first row with an action that is not one of the choices, or -1. What was written is then of no
    use.
    """
    n, A = values.shape
    double, dueling, masked = next_online.size > 0, state.size > 0, allowed.size > 0
    for i in range(N_SUMS):
        sums[i] = 0.0
    for row in range(n):
        chosen = action[row] - start
        if chosen < 0 or chosen >= A:
            return row
        target = np.float64(reward[row])
        # Not read at the end of an episode, where the next observation may be anything.
        if discount[row] != 0.0:
            best, most = -1, -math.inf
            for j in range(A):
                if masked and not allowed[row, j]:
                    continue
                value = np.float64(next_online[row, j] if double else next_target[row, j])
                # The first of equal ones, as argmax has it. A NaN is chosen, and reaches the loss.
                if best < 0 or value > most or value != value:
                    best, most = j, value
                    if value != value:
                        break
            value = np.float64(next_target[row, best])
            if dueling:
                mean = 0.0
                for j in range(A):
                    mean += next_target[row, j]
                value += next_target_state[row] - mean / A
            target += discount[row] * value
        value = np.float64(values[row, chosen])
        if dueling:
            mean = 0.0
            for j in range(A):
                mean += values[row, j]
            value += state[row] - mean / A
        error = value - target
        size = abs(error)
        if size <= delta or error != error:
            loss, slope = 0.5 * error * error, error
        else:
            loss, slope = delta * (size - 0.5 * delta), delta if error > 0 else -delta
        slope *= scale * weight[row]
        for j in range(A):
            grad_values[row, j] = 0.0
        if dueling:
            grad_state[row] = slope
            for j in range(A):
                grad_values[row, j] = slope * ((j == chosen) - 1.0 / A)
        else:
            grad_values[row, chosen] = slope
        errors[row] = size
        sums[LOSS] += weight[row] * loss
        sums[VALUE] += value
        sums[TARGET] += target
        sums[ERROR] += size
    return -1
