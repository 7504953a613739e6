"""Time-outs that count only time in which both sides could run.

A paused container or a sleeping laptop stops both sides while the clock runs on. Waits are therefore divided
into slices: such a gap falls into one slice, and a slice counts no more than its planned length.
"""

from __future__ import annotations

from time import monotonic

# Between slices Python also handles signals that another thread received, and a wait notices a `wake` that
# came just before it slept.
SLICE_S = 0.1


def counted_s(began: float, slice_s: float) -> float:
    """Return the counted seconds of a slice of `slice_s` seconds that began at monotonic time `began`."""
    return min(monotonic() - began, slice_s)
