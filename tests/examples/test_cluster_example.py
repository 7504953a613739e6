"""A run that learns from fragments, by its command line and by those for all runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_example_scripts import PNG, rows_of, run, state_of

from parllel.cli import main
from parllel.runs import RunFolder
from parllel.system.processes.process_table import descendants, process_runs

pytestmark = pytest.mark.usefixtures("open_fonts")


@pytest.fixture(scope="module")
def trained(scripts, tmp_path_factory):
    return run(scripts, "cartpole cluster", tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def made(trained, tmp_path):
    """Return a copy of the run, which may be changed."""
    return shutil.copytree(trained, tmp_path / trained.name)


def call(name, folder, *arguments):
    """Call `parllel`; the script is outside of the current folder, and so has to be trusted."""
    trust = ["--trust"] if name in ("show", "resume", "repeat") else []
    return main([name, str(folder), *trust, *map(str, arguments)])


def steps_of(folder):
    return [int(row["step"]) for row in rows_of(folder)]


@pytest.mark.soak
def test_workers_in_processes_leave_the_same_rows(scripts, tmp_path):
    check_rows(run(scripts, "cartpole cluster processes", tmp_path))


def test_a_run_leaves_its_rows(trained):
    check_rows(trained)


def check_rows(trained):
    rows = rows_of(trained)
    assert [row["step"] for row in rows] == ["0", "512", "1024"]
    assert rows[-1]["evaluation/return/count"] == "4"
    assert float(rows[-1]["training/length/count"]) > 1
    # One is published before the first batch, and one after each, of which the last is not learned from.
    assert 1 <= float(rows[-1]["sampler/version_of_batch"]) <= 8
    assert float(rows[-1]["asynchronous/staleness/max"]) <= 4
    assert state_of(trained)["elapsed_steps"] == 1024
    assert state_of(trained)["parts"]["sampler"]["version"] == 9


def test_its_curve_and_its_policy_are_shown(made, tmp_path, capsys):
    assert call("plot", made, "--output", tmp_path / "curves.png") == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG)
    assert call("show", made, "--episodes", "1", "--video", tmp_path / "policy.mp4") == 0
    said = capsys.readouterr().out
    assert "policy after 1,024 environment steps" in said
    assert re.search(r"seed 0: return [\d.]+ in \d+ steps", said)
    assert (tmp_path / "policy.mp4").stat().st_size > 1000


def test_it_is_repeated(made, capsys):
    assert call("repeat", made, "n_steps=256") == 0
    (other,) = (path for path in made.parent.iterdir() if path.name.startswith(f"{made.name}-"))
    assert str(other) in capsys.readouterr().out
    assert steps_of(other) == [0, 256]
    # The same seed: what came before the first batch, which depends on nothing that runs beside it.
    assert rows_of(other)[0]["evaluation/return/mean"] == rows_of(made)[0]["evaluation/return/mean"]


def test_it_goes_on_after_a_kill(made, capsys):
    command = [
        sys.executable,
        "-m",
        "parllel",
        "resume",
        str(made),
        "--trust",
        "n_steps=1000000",
        "target_return=1000",  # out of reach: by luck, four episodes of an evaluation are solved soon
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 150
        while steps_of(made)[-1] < 3 * 1024:
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        pids = [process.pid, *(entry.pid for entry in descendants(process.pid))]
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL
        assert process.stderr.read() == b""
    assert not any(process_runs(pid) for pid in pids)
    folder = RunFolder.open(made)
    assert not folder.in_use
    before = steps_of(made)
    step = int(folder.checkpoints.paths()[-1].stem.split("-")[1])
    assert 1024 <= step <= before[-1]
    version = state_of(made)["parts"]["sampler"]["version"]
    assert call("resume", made, f"n_steps={step + 512}") == 0
    assert f"{step + 512:,} environment steps" in capsys.readouterr().out
    # Rows that were logged after the checkpoint were dropped, and are there again.
    assert steps_of(made) == list(range(0, step + 513, 512))
    assert state_of(made)["parts"]["sampler"]["version"] == version + 5
    record = folder.read_record()
    assert record.outcome["elapsed_steps"] == step + 512
    assert [entry["step"] for entry in record.history] == [1024, step]
