"""Compiled loop that adds up the statistics of episodes.

Importing this module imports numba, which takes a third of a second, so a process imports it only once it
has statistics of several environments to add up. The function releases the GIL and checks no arguments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled


@compiled("(f8[:,::1], i8, i8[:,::1], f8[::1], f8, f8[:,::1], f8[:,::1])", nogil=True)
def add_up(
    rewards: NDArray[np.float64],
    rows: int,
    events: NDArray[np.int64],
    start: NDArray[np.float64],
    discount: float,
    sums: NDArray[np.float64],
    out_ended: NDArray[np.float64],
) -> None:
    """Compute the same as `parllel.cages.stepping.batched_trajectories.add_up`."""
    # The same operations in the same order, without fast-math: tests compare the results bit for bit.
    n = rewards.shape[1]
    reached = np.zeros(n, np.int64)
    # After the events comes one more round per environment, for the steps since its last event, which belong
    # to an episode in progress.
    for e in range(len(events) + n):
        if e < len(events):
            stop, i, ends = events[e, 0], events[e, 1], events[e, 2]
        else:
            stop, i, ends = rows, e - len(events), 2
        if ends:
            length, return_, discounted, weight = sums[i, 0], sums[i, 1], sums[i, 2], sums[i, 3]
            for t in range(reached[i], stop):
                length += 1.0
                return_ += rewards[t, i]
                discounted += weight * rewards[t, i]
                weight *= discount
            sums[i, 0], sums[i, 1], sums[i, 2], sums[i, 3] = length, return_, discounted, weight
        # Written for beginnings too, where the caller drops it: one row per event needs no counter.
        if e < len(events):
            out_ended[e] = sums[i]
            sums[i] = start
        reached[i] = stop
