"""Code that runs in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any


def run_code(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code, and return what came of it; options are those of `subprocess.run`."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    settings = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    return subprocess.run(command, **{**settings, **options})


def output_of(code: str, *arguments: str, **options: Any) -> str:
    """Return what code prints, which must not fail."""
    done = run_code(code, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
