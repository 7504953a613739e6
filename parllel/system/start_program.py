"""What a process that is a program of this package does first."""

from __future__ import annotations

import atexit
import gc


def start_program() -> None:
    """Have the garbage collector look at this process seldom, and not at its end.

    Most commands and workers end soon after they have imported what they need. Python would search all of it
    for cycles, again and again while it is imported, and once more at the end.
    """
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
