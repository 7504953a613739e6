"""Start-up of command-line programs of this package."""

from __future__ import annotations

import atexit
import gc


def start_program() -> None:
    """Make garbage collections rare, and skip the one at exit.

    Most commands and workers end soon after their imports. Python would otherwise search all imported objects
    for cycles, repeatedly during the imports and once more at exit.
    """
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
