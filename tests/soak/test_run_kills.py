"""A run that is killed thirty times, at any moment, is in the end the run that was left alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from parllel.runs import RunFolder
from parllel.testing.resume_contract import assert_equal_states, comparable_state, rows_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SCRIPT = Path(__file__).with_name("run_to_kill.py")
TRIALS = 30


def start(*arguments):
    return subprocess.Popen([sys.executable, SCRIPT, *map(str, arguments)])


@pytest.mark.parametrize("n_workers", [0, 2])
def test_killed_thirty_times(tmp_path, n_workers):
    assert start(tmp_path, "whole", n_workers).wait(600) == 0
    generator = random.Random(n_workers)
    path, reached, kills = tmp_path / "killed", [], 0
    while kills < TRIALS:
        resuming = (path / "run.json").exists()
        child = start(tmp_path, "resume:killed" if resuming else "killed", n_workers)
        # From before anything is imported to some rows later.
        time.sleep(generator.uniform(0.2, 5.0))
        ended = child.poll() is not None
        workers = psutil.Process(child.pid).children(recursive=True) if not ended else []
        child.kill()
        child.wait(10)
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive
        if not (path / "run.json").exists():
            continue
        folder = RunFolder.open(path)
        json.loads((path / "run.json").read_text())
        if folder.checkpoints.paths():
            _, state = folder.checkpoints.load_newest(warn=pytest.fail)
            reached.append(state["elapsed_steps"])
            assert reached == sorted(reached), "a checkpoint was lost"
        if ended:
            break
        kills += 1
    if not ended:
        assert start(tmp_path, "resume:killed", n_workers).wait(600) == 0
    folders = [RunFolder.open(tmp_path / name) for name in ("whole", "killed")]
    assert rows_of(folders[0]) == rows_of(folders[1])
    states = [folder.checkpoints.load_newest()[1] for folder in folders]
    assert_equal_states(comparable_state(states[1]), comparable_state(states[0]))
    assert kills == TRIALS, f"the run had ended after {kills} kills: make it longer"
