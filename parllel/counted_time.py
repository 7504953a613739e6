"""How much of a wait counts towards its time-out: time in which both sides could run.

A container that is paused, or a laptop that sleeps, stops both sides while the clock goes on. Waits are cut
into slices, so such a gap falls into one of them, and no slice counts for more than it was to take.
"""

from __future__ import annotations

from time import monotonic

# Slices also let Python handle a signal that another thread took, and end a wait whose `wake` came an instant
# too early.
SLICE_S = 0.1


def counted_s(began: float, slice_s: float) -> float:
    """Return how much of a slice counts that began at `began` of the monotonic clock."""
    return min(monotonic() - began, slice_s)
