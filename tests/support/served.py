"""A server in a process of its own, which prints its URL at the end of its first line."""

from __future__ import annotations

import subprocess
import sys


class Served:
    """A process of this Python that serves, as a context.

    Args:
        arguments: of the command, after the interpreter.
    """

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip().rpartition(" ")[2]

    def end(self, timeout_s=60):
        """Return the exit status, and what was printed since the URL."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()
