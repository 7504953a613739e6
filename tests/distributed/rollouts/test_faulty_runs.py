"""What a trainer hears of environments that fail in its workers, through all that is between them."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_run import Config, build

from parllel.errors import WorkerTimeoutError
from parllel.runners import resume, train
from parllel.system.processes.process_table import process_runs

SCRIPT = Path(__file__).parent / "faulty_run.py"
# As in a run: pytest's would let the thread raise it.
pytestmark = [
    pytest.mark.filterwarnings("always:.*is parked"),
    pytest.mark.usefixtures("open_fonts"),
]


def pids_of(folder):
    """Return the processes of each environment."""
    return [[int(pid) for pid in (folder / f"pids{i}").read_text().split()] for i in (0, 1)]


def test_a_run_whose_environments_always_fail_ends_and_can_go_on(tmp_path):
    command = [sys.executable, SCRIPT, "--fault", "exit", "--n-steps", "100000", "--runs", "runs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    (error,) = [line for line in said if "Error: " in line]
    assert error.startswith("parllel.errors.RestartsUsedUpError: environment ")
    assert "is parked: 1 restarts within 600 s are used up" in error
    assert said[-3].endswith("was killed") or "exited with code 3" in said[-3]
    assert said[-2] == "in worker 0"
    assert said[-1].startswith("continue from the checkpoint of step ")
    assert said[-1].endswith(" with: parllel resume runs/faulty")
    folder = tmp_path / "runs" / "faulty"
    log = (folder / "log.txt").read_text()
    assert all(f"environment {i} is parked" in log for i in (0, 1))
    pids = pids_of(folder)
    assert [len(one) for one in pids] == [2, 2]
    assert not any(process_runs(pid) for one in pids for pid in one)
    result, _ = resume(folder, changes={"fault": "none", "n_steps": 256})
    assert (result.elapsed_steps, result.stopped_by) == (256, None)


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"fault": "raise"}, ["the simulator failed", "the simulator failed"]),
        ({"fault": "hang", "timeout_s": 5.0}, ["5 s during a step"] * 2),
        (
            {"fault": "kill", "again": "hang", "timeout_s": 5.0},
            ["was killed by SIGKILL", "5 s during its construction"],
        ),
    ],
    ids=["raise", "hang", "hang when made again"],
)
@pytest.mark.few(1)
def test_a_run_goes_on_without_an_environment_that_always_fails(tmp_path, faults, said):
    config = Config(**faults, which=(1,), n_steps=1_000_000, stop_when_parked=True)
    result, folder = train(build, config, base=tmp_path)
    assert result.stopped_by == "a parked environment"
    lines = (folder.path / "log.txt").read_text().splitlines()
    (at,) = [i for i, line in enumerate(lines) if "is parked" in line]
    assert "warning: RuntimeWarning: environment 1 is parked: 1 restarts within" in lines[at]
    for line, reason in zip(lines[at + 1 : at + 3], said, strict=True):
        assert reason in line
    with (folder.path / "progress.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert (last["sampler/workers/parked"], last["sampler/workers/env_restarts"]) == ("1", "1")
    assert not any(process_runs(pid) for one in pids_of(folder.path) for pid in one)


def test_an_environment_that_hangs_when_it_is_first_made_ends_the_run(tmp_path):
    config = Config(made="hang", which=(1,), timeout_s=3.0)
    with pytest.raises(WorkerTimeoutError, match=r"cage 1: .* within 3 s while it was made"):
        train(build, config, base=tmp_path)
    # A run that never began leaves no folder.
    assert list(tmp_path.iterdir()) == []
