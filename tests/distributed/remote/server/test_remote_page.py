"""The shell lines of docs/remote.md run as a reader would run them, from top to bottom in one folder."""

from __future__ import annotations

import shutil
import sys

import pytest
from shell_pages import ROOT, blocks_of, run_lines
from unused_ports import unused_port

PAGE = (ROOT / "docs" / "remote.md").read_text()
PORT = "8081"  # which another program may have


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_shell_lines_of_the_page_run(tmp_path):
    # The page serves the run that the page on policies trains for a moment.
    training = blocks_of((ROOT / "docs" / "policies.md").read_text(), "python")[0]
    (tmp_path / "train_cartpole.py").write_text(training)
    blocks = [f"{sys.executable} train_cartpole.py", *blocks_of(PAGE, "sh")]
    assert len(blocks) > 4
    for block in blocks:
        run_lines(block.replace(PORT, str(unused_port())), tmp_path)
    assert (tmp_path / "episode.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "logs.json").exists()
