"""A server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "serve_script.py"


class Served:
    """`serve_script.py` as a process, as a context.

    Args:
        arguments: of the script.
    """

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()

    def end(self):
        """Return the exit status, and what was printed since the URL."""
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()
