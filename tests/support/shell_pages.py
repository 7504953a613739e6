"""The shell lines of documents, run as a reader would run them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks_of(text: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def variables(**more: str) -> dict[str, str]:
    """Return the variables of a shell whose `python` and `parllel` are those of the tests."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'patterns'}",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def run_lines(lines: str, folder: Path, *, timeout_s: float = 250, **more: str) -> str:
    """Return what lines print, to both outputs, and end what they have started if they fail."""
    # It does not wait for the servers that it ends, as the reader need not.
    process = subprocess.Popen(
        ["bash", "-e", "-c", f"{lines}\nwait"],
        cwd=folder,
        env=variables(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, f"{lines}\n{said}"
    assert "Traceback" not in said, said
    return said
