"""`parllel sweep` in processes, killed and continued."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_process import command

from parllel.runs.checkpoints import Checkpoints
from parllel.runs.run_folder import RunFolder, run_state
from parllel.runs.run_lock import hold_lock

SCRIPT = Path(__file__).parent / "small_build.py"


@pytest.fixture
def sweep(tmp_path):
    """Start a sweep in the background; it and its runs end with the test."""
    started = []

    def sweep(*settings):
        words = command("sweep", SCRIPT, *settings, "--into", tmp_path / "s")
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        return process

    yield sweep
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "s"


def done(process):
    """Wait for a sweep. Returns its status and output."""
    output, _ = process.communicate(timeout=200)
    return process.returncode, output


def states(folder):
    """Return the state of each run, by name."""
    opened = [RunFolder.open(path.parent) for path in folder.glob("*/run.json")]
    return {one.path.name: run_state(one, one.read_record()) for one in opened}


def steps_of(run):
    """Return the steps of a run's checkpoints."""
    found = Checkpoints(run / "checkpoints").paths()
    return [int(path.stem.split("-")[1]) for path in found]


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_a_grid_is_run_and_not_repeated(sweep, folder):
    status, output = done(sweep("learning.rate=1e-3,2e-3", "seed=0"))
    assert status == 0, output
    assert states(folder) == {
        f"learning.rate={rate},seed=0": "finished" for rate in ("0.001", "0.002")
    }
    assert "[2/2]" in output
    assert (folder / "curves.png").is_file()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/run.json")}
    status, output = done(sweep("learning.rate=1e-3,2e-3", "seed=0-1"))
    assert status == 0, output
    assert "2 of 4 runs have ended before" in output
    assert list(states(folder).values()) == ["finished"] * 4
    assert [one["n_seeds"] for one in results(folder)["settings"]] == [2, 2]
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.soak
def test_threads_are_shared(tmp_path, spawn):
    script = tmp_path / "threaded.py"
    script.write_text(
        "import os, sys\nfrom dataclasses import dataclass\n"
        f"sys.path.append({str(SCRIPT.parent)!r})\n"
        "import small_build\n"
        "@dataclass(frozen=True)\nclass Config:\n    seed: int = 0\n    threads: int = 8\n"
        "def build(config: Config, stack, folder, console):\n"
        "    print('threads', config.threads, os.environ['OMP_NUM_THREADS'])\n"
        "    return small_build.build(small_build.Config(seed=config.seed), stack, folder, console)\n"
    )
    spawn("sweep", script, "seed=5", "--into", tmp_path / "s", "--cores-per-run", "3")
    assert (tmp_path / "s" / "logs" / "seed=5.log").read_text() == "threads 3 3\n"


def test_a_failing_run_costs_no_other_run_anything(sweep, folder):
    status, output = done(sweep("failing_at=-1,40", "seed=0"))
    assert status == 1
    assert states(folder) == {"failing_at=-1,seed=0": "finished", "failing_at=40,seed=0": "failed"}
    log = folder / "logs" / "failing_at=40,seed=0.log"
    line = f"failed: failing_at=40,seed=0: ValueError: the loss is not finite (log: {log})"
    assert line in output.splitlines()
    assert "Traceback" in log.read_text()
    assert "Traceback" not in output
    first, second = results(folder)["runs"]
    assert (first["state"], second["state"]) == ("finished", "failed")
    # The next start tries it again.
    status, output = done(sweep("failing_at=-1,40", "seed=0"))
    assert status == 1
    assert log.read_text().count("Traceback") >= 2
    assert "failing_at=-1,seed=0: running" not in output


def test_a_killed_sweep_takes_its_runs_along_and_is_continued(sweep, folder):
    # One run ends at once; two are killed after their second checkpoint; a fourth has not begun.
    arguments = ("n_steps=20,300", "seed=0-1", "pause_s=0.2", "--jobs", "2")
    slow = [folder / f"n_steps=300,seed={seed},pause_s=0.2" for seed in (0, 1)]
    process = sweep(*arguments)
    until(lambda: all(steps_of(run)[-1:] >= [40] for run in slow))
    ended = folder / "n_steps=20,seed=0,pause_s=0.2" / "run.json"
    before = ended.stat().st_mtime_ns
    process.kill()
    process.wait()
    until(lambda: "running" not in states(folder).values())
    pids = [int((run / "lock").read_text()) for run in slow]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert [states(folder)[run.name] for run in slow] == ["failed", "failed"]
    status, output = done(sweep(*arguments))
    assert status == 0, output
    assert list(states(folder).values()) == ["finished"] * 4
    assert ended.stat().st_mtime_ns == before
    for run in slow:
        (resumed,) = json.loads((run / "run.json").read_text())["history"]
        assert resumed["step"] >= 40
        assert steps_of(run)[-1] == 300


@pytest.mark.soak
def test_a_killed_run_is_named_and_continued(sweep, folder):
    arguments = ("n_steps=200", "seed=0-1", "pause_s=0.2", "--jobs", "2")
    victim = folder / "n_steps=200,seed=0,pause_s=0.2"
    process = sweep(*arguments)
    until(lambda: steps_of(victim)[-1:] >= [40])
    os.kill(int((victim / "lock").read_text()), signal.SIGKILL)
    status, output = done(process)
    assert status == 1
    assert f"failed: {victim.name}: was killed by SIGKILL (log: " in output
    assert sorted(states(folder).values()) == ["failed", "finished"]
    status, output = done(sweep(*arguments))
    assert status == 0, output
    assert json.loads((victim / "run.json").read_text())["history"][0]["step"] >= 40


def test_a_folder_without_a_run_is_started_anew(sweep, folder):
    (folder / "seed=0").mkdir(parents=True)
    (folder / "seed=0" / "left.txt").write_text("")
    (folder / "sweep.json").write_text(
        json.dumps({"script": str(SCRIPT), "kind": "grid", "keys": ["seed"]})
    )
    assert done(sweep("seed=0"))[0] == 0
    assert states(folder) == {"seed=0": "finished"}
    assert not (folder / "seed=0" / "left.txt").exists()


def test_ctrl_c_saves_checkpoints(sweep, folder):
    arguments = ("seed=0-3", "n_steps=1000000", "pause_s=0.02", "--jobs", "2")
    process = sweep(*arguments)
    until(lambda: sum(bool(steps_of(path.parent)) for path in folder.glob("*/run.json")) == 2)
    process.send_signal(signal.SIGINT)
    status, output = done(process)
    assert status == 130
    assert list(states(folder).values()) == ["stopped", "stopped"]
    assert "SIGINT: runs write their checkpoints" in output
    assert output.endswith("Stopped; the same command continues the sweep\n")
    assert "Traceback" not in output


@pytest.mark.soak
def test_a_second_ctrl_c_kills(sweep, folder):
    process = sweep("seed=0", "pause_s=1000")
    until(lambda: (folder / "seed=0,pause_s=1000.0" / "progress.csv").is_file())
    pid = int((folder / "seed=0,pause_s=1000.0" / "lock").read_text())
    process.send_signal(signal.SIGINT)
    until(lambda: "SIGINT: runs" in process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_mistakes(mistake, tmp_path, folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is no such script" in mistake("sweep", "missing.py", "seed=0-4")
    (tmp_path / "empty.py").write_text("")
    assert "there is no function `build`" in mistake("sweep", "empty.py", "seed=0-4")
    (tmp_path / "dicts.py").write_text("def build(config: dict, stack, folder, console): ...")
    assert "that names a dataclass, got config: dict;" in mistake("sweep", "dicts.py", "seed=0-4")
    (tmp_path / "bare.py").write_text("def build(config, stack, folder, console): ...")
    assert "that names a dataclass, got none;" in mistake("sweep", "bare.py", "seed=0-4")
    (tmp_path / "broken.py").write_text("1 / 0")
    assert "ZeroDivisionError" in mistake("sweep", "broken.py", "seed=0-4")
    assert "did you mean 'learning.rate'?" in mistake("sweep", SCRIPT, "learning.rat=1")
    assert "expected a whole number, got 'x'" in mistake("sweep", SCRIPT, "seed=1,x")
    assert "the range 4-0 is empty" in mistake("sweep", SCRIPT, "seed=4-0")
    assert "expected at least one KEY=VALUES" in mistake("sweep", SCRIPT)
    assert "--jobs: expected 1 or more" in mistake("sweep", SCRIPT, "seed=0", "--jobs", "0")
    assert not (tmp_path / "runs").exists()  # nothing was started


def test_a_folder_belongs_to_one_sweep(mistake, call, folder):
    assert call("sweep", SCRIPT, "seed=0", "--into", folder)[0] == 0
    with hold_lock(folder / "lock"):
        said = mistake("sweep", SCRIPT, "seed=0", "--into", folder)
        assert re.search(rf"another process \({os.getpid()}\) is using this sweep", said)
    said = mistake("sweep", SCRIPT, "learning.rate=1", "--into", folder)
    assert "is the folder of another sweep, with the keys seed instead of learning.rate" in said
    config = folder / "seed=0" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "n_steps": 80}))
    said = mistake("sweep", SCRIPT, "seed=0", "--into", folder)
    assert "was trained with n_steps=80 instead of 60" in said
    (folder / "sweep.json").unlink()
    assert "not the folder of a sweep" in mistake("sweep", SCRIPT, "seed=0", "--into", folder)
