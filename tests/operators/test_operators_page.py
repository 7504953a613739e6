"""The shell lines and the TOML of docs/operators.md run as a reader would run them, in one folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operators.md").read_text()
pytestmark = pytest.mark.timeout(300)
VARIABLES = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": f"{ROOT}:{ROOT / 'patterns'}",
    "OMP_NUM_THREADS": "1",
}


def blocks_of(language, heading):
    """Return the blocks under a heading of the page in a language."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.M)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)


def run(block, folder):
    """Run lines of a shell, and return what they printed."""
    command = ["bash", "-e", "-c", block]
    done = subprocess.run(
        command, cwd=folder, env=VARIABLES, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_an_experiment_of_the_page_is_played_by_the_command(tmp_path):
    (script,) = blocks_of("python", "Experiments")
    (tmp_path / "baselines.py").write_text(script)
    (lines,) = blocks_of("sh", "Experiments")
    said = run(lines, tmp_path)
    table, _, results = said.partition("\n[")
    assert "noop - random" in table
    (group,) = json.loads(f"[{results}")
    assert [one["operator_id"] for one in group["operators"]] == ["random", "noop"]
    assert [one["ended"] for one in group["operators"]] == [20, 20]


def test_the_same_in_toml_is_played(tmp_path):
    (text,) = blocks_of("toml", "In TOML")
    (tmp_path / "baselines.toml").write_text(text)
    said = run("parllel operators run baselines.toml --set episodes=3", tmp_path)
    assert re.search(r"^random +3/3 +0 ", said, re.M)
    config = json.loads((tmp_path / "runs" / "baselines" / "config.json").read_text())
    assert (config["episodes"], config["success"]) == (3, 100.0)
