"""`parllel` in a process of its own."""

from __future__ import annotations

import sys


def command(*argv):
    """Return the command line."""
    return [sys.executable, "-m", "parllel", *(str(argument) for argument in argv)]
