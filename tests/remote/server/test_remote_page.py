"""The shell lines of docs/remote.md run as a reader would run them, from top to bottom in one folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from serving import free_port

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs" / "remote.md").read_text()
PORT = "8081"  # which another program may have
pytestmark = pytest.mark.timeout(600)


def blocks_of(text: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_shell_lines_of_the_page_run(tmp_path):
    # The page serves the run that the page on policies trains for a moment.
    training = blocks_of((ROOT / "docs" / "policies.md").read_text(), "python")[0]
    (tmp_path / "train_cartpole.py").write_text(training)
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'patterns'}",
        "OMP_NUM_THREADS": "1",
    }
    blocks = [f"{sys.executable} train_cartpole.py", *blocks_of(PAGE, "sh")]
    assert len(blocks) > 4
    for block in blocks:
        run(block.replace(PORT, str(free_port())), tmp_path, variables)
    assert (tmp_path / "episode.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "logs.json").exists()


def run(block: str, folder: Path, variables: dict[str, str]) -> None:
    """Run a block, and end what it has started if it fails."""
    # It does not wait for the servers that it ends, as the reader need not.
    process = subprocess.Popen(
        ["bash", "-e", "-c", f"{block}\nwait"],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=250)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, f"{block}\n{said}"
    assert "Traceback" not in said
