"""Folders of runs that no runner trained."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from parllel.runs import RunFolder


@pytest.fixture
def experiment(tmp_path):
    """The folder of a run of another kind, as another part of parllel leaves it."""
    folder = RunFolder(tmp_path / "runs", "grid")
    with folder.lock():
        folder.write_record(None, {"seed": 3, "players": ["random"]}, kind="experiment")
        folder.note_outcome({"episodes": 10})
    return folder.path


def test_all_kinds_are_in_one_list(call, run, experiment):
    status, output, errors = call("runs", run.parent)
    assert (status, errors) == (0, "")
    heading, *lines = (line.split() for line in output.splitlines())
    names = ["run", "when", "kind", "build", "seed", "steps", "return", "state", "size"]
    assert heading == names
    words = {line[0]: line for line in lines}
    assert words[str(run)][3:6] == ["training", "small_build:build", "0"]
    assert words[str(experiment)][3:6] == ["experiment", "3", "finished"]
    found = [json.loads(line) for line in call("runs", "--json", run.parent)[1].splitlines()]
    (other,) = (line for line in found if line["path"] == str(experiment))
    values = ("kind", "build", "seed", "steps", "evaluation_return", "state")
    assert [other[name] for name in values] == ["experiment", None, 3, None, None, "finished"]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(None, "failed"), ({}, "finished"), ({"stopped_by": "SIGTERM"}, "stopped")],
    ids=str,
)
def test_states_of_another_kind(call, experiment, edit, outcome, state):
    edit(experiment / "run.json", outcome=outcome)
    assert json.loads(call("runs", "--json", experiment)[1])["state"] == state
    with RunFolder.open(experiment).lock():
        assert json.loads(call("runs", "--json", experiment)[1])["state"] == "running"


@pytest.mark.parametrize("trust", [[], ["--trust"]], ids=str)
@pytest.mark.parametrize("name", ["resume", "repeat", "show", "play"])
def test_only_training_runs_go_on_or_are_shown(mistake, experiment, name, trust):
    before = sorted(experiment.iterdir())
    assert mistake(name, experiment, *trust) == (
        f"parllel: {experiment}: expected a training run, got one of kind 'experiment', which has no build "
        f"function and no checkpoints; `parllel runs` lists it, and this command ran it: "
        f"{shlex.join(sys.orig_argv)}"
    )
    assert sorted(experiment.iterdir()) == before
    assert [path.name for path in experiment.parent.iterdir()] == ["grid"]


def test_only_training_runs_have_curves(call, mistake, run, experiment, tmp_path):
    (experiment / "progress.csv").write_text("step,evaluation/return/mean\n0,1.0\n")
    said = f"{experiment}: expected a training run, got one of kind 'experiment', which has no learning"
    output = tmp_path / "curves.png"
    assert mistake("plot", experiment, "-o", output).startswith(f"parllel: nothing to draw: {said}")
    status, printed, errors = call("plot", run.parent, "-o", output)
    assert (status, printed) == (0, f"1 curve of 1 run: {output}\n")
    assert errors.startswith(f"left out: {said}")


@pytest.mark.parametrize(
    ("key", "value"), [("kind", "[/red]"), ("kind", "\x1b[31mred"), ("created", "[/red]")]
)
def test_a_record_that_was_changed_does_not_hide_other_runs(call, experiment, edit, key, value):
    edit(experiment / "run.json", **{key: value})
    status, said, _ = call("runs", str(experiment.parent))
    assert status == 0
    assert ("damaged" in said) == (key == "kind")
    assert "\x1b[31m" not in said
