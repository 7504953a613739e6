from __future__ import annotations

import csv
import json
import signal
import subprocess
import time

import pytest
from cli_process import command
from rich.console import Console
from small_build import Config, build

from parllel.cli.rerun import changes_of, report
from parllel.runners import train
from parllel.runs import RunFolder, RunResult


def steps_of(run):
    with (run / "progress.csv").open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def config_of(run):
    return json.loads((run / "config.json").read_text())


def test_a_run_goes_on(call, run):
    status, output, errors = call("resume", run, "n_steps=100", "learning.rate=0.5")
    assert (status, errors) == (0, "")
    assert output.endswith(f"Everything about this run is in {run}\n")
    assert "100 environment steps, last mean return" in output
    assert steps_of(run) == [0, 20, 40, 60, 80, 100]
    assert config_of(run) == {
        **config_of(run),
        "n_steps": 100,
        "learning": {"rate": 0.5},
    }


def test_how_a_run_ended_is_said(capsys, tmp_path):
    results = {
        "Solved after 1,000": RunResult(1000, 480.0, solved=True),
        "Finished after 1,000": RunResult(1000, 480.0),
        "Stopped by no progress after 1,000": RunResult(1000, 480.0, stopped_by="no progress"),
    }
    for said, result in results.items():
        assert report(Console(), result, RunFolder(tmp_path)) == 0
        assert capsys.readouterr().out.startswith(said)


def test_a_run_that_has_ended_stays_as_it_is(call, run):
    status, output, _ = call("resume", run)
    assert status == 0
    assert "had ended after 60 steps" in output
    assert steps_of(run) == [0, 20, 40, 60]


def test_a_run_is_repeated(call, run, tmp_path):
    def rows(path):
        with (path / "progress.csv").open(newline="") as file:
            found = list(csv.DictReader(file))
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in found]

    assert call("repeat", run)[0] == 0
    assert rows(run.parent / "small-seed0-2") == rows(run)
    status, output, _ = call("repeat", run, "seed=7", "--runs", tmp_path / "others")
    assert status == 0
    (other,) = (tmp_path / "others").iterdir()
    assert str(other) in output
    assert config_of(other) == {**config_of(run), "seed": 7}
    assert rows(other) != rows(run)
    assert call("repeat", run, "--name", "again")[0] == 0
    assert rows(run.parent / "again") == rows(run)


def test_mistakes_in_changes(mistake, run):
    for name in ("resume", "repeat"):
        assert "n_steps" in mistake(name, run, "n_step=100")
        assert "learning.rate" in mistake(name, run, "learning.rat=1")
        assert "n_steps" in mistake(name, run, "n_steps=many")
        assert "expected KEY=VALUE, got 'fast'" in mistake(name, run, "fast")
        assert "seed: expected one value, got '1' and '2'" in mistake(name, run, "seed=1", "seed=2")
    assert config_of(run)["n_steps"] == 60
    assert [path.name for path in run.parent.iterdir()] == [run.name]


def test_changes():
    assert changes_of([]) is None
    assert changes_of(["a.b=1", "c=x=y", "d="]) == {"a.b": "1", "c": "x=y", "d": ""}
    for wrong in ("=1", "a", ""):
        with pytest.raises(ValueError, match="expected KEY=VALUE, got"):
            changes_of([wrong])


def test_a_run_that_is_in_use(mistake, run):
    with RunFolder.open(run).lock():
        assert "is using this run" in mistake("resume", run, "n_steps=100")


def test_an_error_of_the_training_has_its_traceback(call, spawn, run):
    # A ValueError like those of mistakes, but out of the loop.
    with pytest.raises(ValueError, match="the loss is not finite"):
        call("resume", run, "n_steps=100", "failing_at=80")
    done = spawn("repeat", run, "failing_at=40", check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ValueError: the loss is not finite" in done.stderr.splitlines()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.few(1)
def test_a_signal_ends_it_with_a_checkpoint(tmp_path, number, status, call):
    config = Config(n_steps=20, pause_s=0.02)
    run = train(build, config, base=tmp_path, name="slow")[1].path
    process = subprocess.Popen(
        command("resume", run, "n_steps=1000000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        deadline = time.monotonic() + 40
        while steps_of(run)[-1] < 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        output, errors = (stream.decode() for stream in process.communicate(timeout=20))
    assert (process.returncode, errors) == (status, "")
    (said,) = [line for line in output.splitlines() if line.startswith("Stopped by")]
    assert said.startswith(f"Stopped by {number.name} after ")
    assert said.endswith(f"; continue with: parllel resume {run}")
    steps = int(said.split()[4].replace(",", ""))
    assert RunFolder.open(run).checkpoints.paths()[-1].stem == f"step-{steps:012d}"
    status, output, _ = call("resume", run, f"n_steps={steps + 40}")
    assert (status, f"{steps + 40:,} environment steps" in output) == (0, True)
