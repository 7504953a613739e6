"""Count only the part of a wait in which both sides could run towards its time-out.

A container that is paused, or a laptop that sleeps, stops both sides while the clock runs on. Waits are
divided into slices: such a gap falls into one slice, and a slice counts for no more than its planned length.
"""

from __future__ import annotations

from time import monotonic

# Between slices Python also handles signals that another thread received, and a wait notices a `wake` that
# came in the instant before it slept.
SLICE_S = 0.1


def counted_s(began: float, slice_s: float) -> float:
    """Return how many seconds count of a slice of `slice_s` seconds that began at monotonic time `began`."""
    return min(monotonic() - began, slice_s)
