"""`parllel operators`: experiments from the command line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from parllel.cli.operators_commands import WORKERS
from parllel.distributed.operators import workers

FRAIL = Path(__file__).parents[1] / "distributed" / "operators" / "frail_worker.py"
SCRIPT = f"""
from parllel.distributed.operators import Experiment, OperatorConfig

def frail(operator_id, *words):
    worker = [{sys.executable!r}, {str(FRAIL)!r}, *words]
    return OperatorConfig("program", operator_id, "five", worker=worker)

def experiment(die="none"):
    operators = [frail("good"), frail("other", "die=" + die)]
    return Experiment("small", operators, seeds=[1, 2, 3], restarts=0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_an_experiment_is_run_listed_and_shown_again(call, script, tmp_path):
    runs = tmp_path / "runs"
    status, output, errors = call("operators", "run", script, "--dir", runs)
    assert (status, errors) == (0, "")
    assert re.search(r"^good +3/3 +0 +10 +5 ", output, re.MULTILINE)
    assert re.search(r"^other - good +3 +0 +0 +0$", output, re.MULTILINE)
    assert "no clear difference between other and good: 0 over 3 pairs, too few" in output
    assert output.endswith(f"folder: {runs / 'small'}\n")
    status, again, _ = call("operators", "results", runs / "small")
    assert status == 0
    assert output.startswith(again)
    listed = json.loads(call("runs", "--json", runs)[1])
    assert (listed["kind"], listed["state"], listed["steps"]) == ("experiment", "finished", 30)
    assert listed["build"] == f"{tmp_path.name}/script.py"
    (group,) = json.loads(call("operators", "results", "--json", runs / "small")[1])
    assert group == json.loads((runs / "small" / "results.json").read_text())["results"][0]


def test_an_operator_that_failed_shows_in_the_status(call, script, tmp_path):
    status, output, errors = call(
        "operators", "run", script, "--set", "die=2", "--dir", tmp_path / "runs", "--progress"
    )
    assert status == 1
    (said,) = [line for line in errors.splitlines() if line.startswith("other (five): 1 of 3")]
    assert "and 1 not played: operator 'other' (five): its process exited with code 7" in said
    assert re.search(r"^other +1/3 +1 +5 ", output, re.MULTILINE)
    assert "3/3 episodes" in errors  # the bar


def test_bad_scripts_are_one_sentence(mistake, script, tmp_path):
    runs = tmp_path / "runs"
    script.write_text(SCRIPT.replace('"program"', '"robot"'))
    assert "operator 'good': operator_type: expected one of" in mistake(
        "operators", "run", script, "--dir", runs
    )
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def experiment(:")
    said = mistake("operators", "run", wrong, "--dir", runs)
    assert f"{wrong}: cannot be imported: SyntaxError" in said
    assert not runs.exists()


def test_the_script_of_a_run_from_elsewhere_is_refused(mistake, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "trained.toml"
    file.write_text(
        f'name = "trained"\nseeds = [1]\n[[operators]]\noperator_type = "rl"\noperator_id = "a"\n'
        f'env_id = "CartPole-v1"\npolicy = "{run}"\n'
    )
    runs = tmp_path / "experiments"
    said = mistake("operators", "run", file, "--dir", runs)
    assert said.startswith(f"parllel: {run}: this would execute ")
    assert not runs.exists()


def test_results_of_other_folders(mistake, run, tmp_path):
    assert mistake("operators", "results", run) == (
        f"parllel: {run}: expected the folder of an experiment, got a run of kind 'training'"
    )
    assert "there is no such folder" in mistake("operators", "results", tmp_path / "none")


def test_workers_are_listed(call):
    status, output, _ = call("operators", "workers")
    assert status == 0
    kinds = [line.split()[0] for line in output.splitlines()[1:]]
    assert sorted(kinds) == ["baseline", "chess", "human", "llm", "policy", "program", "rl"]


def test_a_worker_plays_by_its_name(spawn, tmp_path):
    flags = ("--env-id", "CartPole-v1", "--policy", "random", "--telemetry-dir", tmp_path)
    done = spawn("operators", "worker", "operators", *flags, "--seeds", "3:5")
    assert [json.loads(line)["seed"] for line in done.stdout.splitlines()] == [3, 4]


def test_each_worker_of_the_package_has_a_command():
    folder = Path(workers.__file__).parent
    names = {path.stem.removesuffix("_worker") for path in folder.glob("*_worker.py")}
    assert names == {*WORKERS, "barlog"}  # another spelling of balrog


def test_an_unknown_worker_is_refused(call, capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        call("operators", "worker", "nobody")
    assert "invalid choice: 'nobody'" in capsys.readouterr().err
