"""The example of a cluster, on a Ray that it starts, is killed and resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from ray_setup import gone, wait_until

from parllel.runs import RunFolder

# Each start imports torch in several processes: too long for every run of all tests.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
SCRIPT = Path(__file__).parents[4] / "examples" / "cartpole_cluster" / "train_ppo.py"
SMALL = (
    "--ray --n-workers 1 "
    "--log-interval-steps 2048 --n-eval-episodes 2 --n-steps 1000000 --target-return 1000"
)


def test_a_run_that_was_killed_is_resumed(ray_folder, tmp_path):
    path = kill_a_run(tmp_path, *SMALL.split())
    steps = RunFolder.open(path).checkpoints.load_newest()[1]["elapsed_steps"]
    done = resume(path, f"n_steps={steps + 2048}", timeout=280)
    state = RunFolder.open(path).checkpoints.load_newest()[1]
    assert state["elapsed_steps"] >= steps + 2048, done.stdout + done.stderr


def test_a_run_that_was_killed_is_solved(ray_folder, tmp_path):
    done = resume(kill_a_run(tmp_path, "--ray"), timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr


def kill_a_run(folder, *flags):
    """Start the example, kill it once it has learned something, and return its folder."""
    command = [sys.executable, str(SCRIPT), "--runs", "runs", *flags]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            path = wait_until(lambda: checkpointed(folder) or process.poll(), "a checkpoint", 280)
        finally:
            started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
            process.kill()
    assert process.returncode == -9
    wait_until(lambda: all(map(gone, started)), "the end of what it started")
    return path


def resume(path, *arguments, timeout):
    """Go on with a run by the command."""
    command = [sys.executable, "-m", "parllel", "resume", str(path), *arguments]
    # A script is executed from its own folder.
    return subprocess.run(
        command, cwd=SCRIPT.parent, capture_output=True, text=True, timeout=timeout
    )


def checkpointed(folder):
    """Return the run, once it has learned something and written a checkpoint."""
    for path in folder.glob("runs/*"):
        if (path / "run.json").exists():
            checkpoints = RunFolder.open(path).checkpoints
            if checkpoints.paths() and checkpoints.load_newest()[1]["elapsed_steps"]:
                return path
    return None
