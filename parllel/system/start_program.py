"""Start-up and exit status of command-line programs of this package."""

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


def forget_interrupt() -> None:
    """Let the status of a program count that has handled a KeyboardInterrupt.

    Otherwise `python -m` may end by SIGINT all the same: CPython remembers a KeyboardInterrupt that has left
    text that was executed, such as the methods of dataclasses during an import, until more is executed.
    """
    exec("")
