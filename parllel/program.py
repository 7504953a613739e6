"""What a process that is a program of this package does first."""

from __future__ import annotations

import atexit
import gc


def start_program() -> None:
    """Have the garbage collector look at this process seldom, and not at its end.

    Most commands and workers end soon after they have imported what they need. Python would search that for
    cycles as it is imported, for a tenth of the time, and again as it ends: 0.4 s of PyTorch alone.
    """
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
