"""Checkpoints: which stay, which one is loaded, and that a kill spoils none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.runs import Checkpoints, load_state, save_state


def steps_of(checkpoints):
    return [int(path.name[len("step-") : -len(".zip")]) for path in checkpoints.paths()]


def test_a_checkpoint_is_a_state_file_named_after_its_step(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    assert checkpoints.paths() == []
    path = checkpoints.save(20480, {"a": np.arange(3)})
    assert path == tmp_path / "run" / "checkpoints" / "step-000000020480.zip"
    assert load_state(path)["a"].tolist() == [0, 1, 2]
    assert checkpoints.paths() == [path]
    found, state = checkpoints.load_newest()
    assert found == path
    assert state["a"].tolist() == [0, 1, 2]


def test_the_last_ones_stay_and_the_step_decides_which_those_are(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    large = 10**13  # which needs more digits than names have
    for step in (5, 10, 200, 3000, large):
        checkpoints.save(step, {"step": step})
    assert steps_of(checkpoints) == [200, 3000, large]
    assert checkpoints.load_newest()[1] == {"step": large}
    os.utime(checkpoints.paths()[0])  # the newest by its date
    assert checkpoints.load_newest()[1] == {"step": large}
    checkpoints.save(large, {"step": "again"})
    assert steps_of(checkpoints) == [200, 3000, large]
    assert checkpoints.load_newest()[1] == {"step": "again"}


@settings(max_examples=60)
@given(
    keep=st.integers(1, 4),
    steps=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    data=st.data(),
)
def test_what_is_kept_is_what_a_list_would_keep(tmp_path_factory, keep, steps, data):
    folder = tmp_path_factory.mktemp("checkpoints")
    expected: list[int] = []
    for step in steps:
        # A run that goes on from an older checkpoint gives the later ones up.
        expected = [*(old for old in expected if old < step), step][-keep:]
        Checkpoints(folder, keep).save(step, {"step": step})
        assert steps_of(Checkpoints(folder)) == expected
        assert Checkpoints(folder).load_newest()[1] == {"step": step}


def test_other_files_are_left_alone(tmp_path):
    for name in ("notes.txt", "step-1.zip.bak", "best-step-000000000001.zip", "other.tmp"):
        (tmp_path / name).touch()
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, {})
    checkpoints.save(2, {})
    assert steps_of(checkpoints) == [2]
    assert len(os.listdir(tmp_path)) == 5


def test_what_a_killed_process_left_goes_with_the_next_save(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "step-000000000003.zip.01234567.tmp").write_bytes(b"half")
    assert checkpoints.paths() == []
    checkpoints.save(4, {})
    assert os.listdir(tmp_path) == ["step-000000000004.zip"]


def test_damaged_ones_are_passed_over_and_named(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save(step, {"step": step})
    first, second, third = checkpoints.paths()
    third.write_bytes(third.read_bytes()[:-5])
    second.write_bytes(b"")
    said = []
    assert checkpoints.load_newest(said.append) == (first, {"step": 1})
    assert [path.name in text for path, text in zip((third, second), said, strict=True)] == [
        True
    ] * 2
    assert all(text.startswith("skipped a checkpoint: ") for text in said)
    assert checkpoints.load_newest()[0] == first
    first.write_bytes(b"x")
    with pytest.raises(ValueError, match=r"none of 3 checkpoints can be read: .*not a saved state"):
        checkpoints.load_newest()


def test_no_checkpoint_is_said(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
            Checkpoints(folder).load_newest()


def test_arguments_are_checked(tmp_path):
    with pytest.raises(ValueError, match="keep: expected at least 1, got 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="step: expected at least 0, got -1"):
        Checkpoints(tmp_path).save(-1, {})


@pytest.mark.parametrize("failing", ["json.dumps", "os.fsync", "os.replace"])
def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch, failing):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 5):
        checkpoints.save(step, {"step": step})
    with monkeypatch.context() as patch:
        patch.setattr(failing, fail)
        for step in (3, 5, 6):
            with pytest.raises(OSError, match="No space left"):
                checkpoints.save(step, {"new": step})
    assert steps_of(checkpoints) == [2, 5]
    assert len(os.listdir(tmp_path)) == 2
    assert checkpoints.load_newest()[1] == {"step": 5}
    with pytest.raises(TypeError, match=r"state\.a: expected numbers, strings"):
        checkpoints.save(6, {"a": object()})
    assert steps_of(checkpoints) == [2, 5]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file").save(1, {})


# One process that imports once, and forks a child for each kill.
KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from parllel.runs import Checkpoints

def make(number):
    return {"number": number, "arrays": [np.full((50, i), number) for i in range(1, 20)]}

def is_whole(path, state):
    number = int(path.name[5:-4])
    arrays = state["arrays"]
    right = all(a.shape == (50, i) and (a == number).all() for i, a in enumerate(arrays, 1))
    return state["number"] == number and len(arrays) == 19 and bool(right)

checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
checkpoints.save(0, make(0))
moments = random.Random(0)
for _ in range(30):
    begin = checkpoints.load_newest()[1]["number"]
    child = os.fork()
    if child == 0:
        try:
            for number in range(begin + 1, begin + 10**6):
                checkpoints.save(number, make(number))
        finally:
            os._exit(1)
    time.sleep(moments.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    damaged = []
    path, state = checkpoints.load_newest(damaged.append)
    print(json.dumps({
        "signal": os.WTERMSIG(status),
        "whole": is_whole(path, state),
        "damaged": damaged,
        "steps": [int(path.name[5:-4]) for path in checkpoints.paths()],
        "other": [name for name in os.listdir(sys.argv[1]) if not name.endswith(".zip")],
    }))
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == 30
    before = 1
    for report in reports:
        assert report["signal"] == 9
        assert report["whole"]
        assert report["damaged"] == []
        # One more than are kept, or than the kill before has left, may be about to be removed.
        assert 1 <= len(report["steps"]) <= max(before, 2) + 1
        before = len(report["steps"])
        assert len(report["other"]) <= 1
        assert all(name.endswith(".tmp") for name in report["other"])
    newest = [report["steps"][-1] for report in reports]
    assert newest == sorted(newest)
    assert newest[-1] > 0  # the children did save


def test_a_state_file_of_another_name_is_no_checkpoint(tmp_path):
    save_state(tmp_path / "checkpoint.zip", {})
    assert Checkpoints(tmp_path).paths() == []
