from __future__ import annotations

import csv
import json
import shutil

import pytest
from rich.console import Console

from parllel.cli.list_runs import RunLine, _print
from parllel.runs import RunFolder


def lines_of(call, folder):
    status, output, errors = call("runs", "--json", folder)
    assert (status, errors) == (0, "")
    return [json.loads(line) for line in output.splitlines()]


def test_what_is_said_of_a_run(call, run):
    (line,) = lines_of(call, run.parent)
    with (run / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    record = json.loads((run / "run.json").read_text())
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert line == {
        "path": str(run),
        "created": record["created"],
        "kind": "training",
        "build": "small_build:build",
        "seed": 0,
        "steps": 60,
        "evaluation_return": float(rows[-1]["evaluation/return/mean"]),
        "state": "finished",
        "megabytes": pytest.approx(size / 1e6, abs=1e-3),
        "problem": None,
    }


def test_a_script_is_named_by_its_file(call, run, edit):
    edit(run / "run.json", build={"name": "__main__:make.run", "file": "/a/cart/train.py"})
    (line,) = lines_of(call, run)
    assert line["build"] == "cart/train.py:make.run"


def test_the_table(call, run):
    status, output, errors = call("runs", run.parent)
    assert (status, errors) == (0, "")
    heading, line = output.splitlines()
    assert heading.split() == ["run", "when", "build", "seed", "steps", "return", "state", "size"]
    words = line.split()
    assert words[0] == str(run)
    assert words[3:6] == ["small_build:build", "0", "60"]
    assert (words[7], words[9]) == ("finished", "MB")


def test_runs_at_any_depth_by_age(call, run, edit, tmp_path):
    folder = tmp_path / "runs"
    for name, created in (("b/c/late", "2030-01-01T00:00:00"), ("a[bold]", "2001-01-01T00:00:00")):
        copy = shutil.copytree(run, folder / name)
        edit(copy / "run.json", created=created)
    (folder / "b" / "notes").mkdir()
    expected = [str(folder / name) for name in ("a[bold]", "small-seed0", "b/c/late")]
    assert [line["path"] for line in lines_of(call, folder)] == expected
    rows = call("runs", folder)[1].splitlines()[1:]
    assert [row.split()[0] for row in rows] == expected
    assert [line["path"] for line in lines_of(call, run)] == [str(run)]


OUTCOME = {
    "ended": "2026-01-01T00:00:00",
    "elapsed_steps": 40,
    "evaluation_return": None,
    "solved": False,
    "stopped_by": None,
}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (OUTCOME, "finished"),
        ({**OUTCOME, "solved": True}, "solved"),
        ({**OUTCOME, "stopped_by": "SIGINT"}, "stopped"),
        (None, "failed"),
    ],
)
def test_states(call, run, edit, outcome, state):
    edit(run / "run.json", outcome=outcome)
    (line,) = lines_of(call, run)
    assert line["state"] == state
    with RunFolder.open(run).lock():
        (line,) = lines_of(call, run)
    assert line["state"] == "running"


def test_a_run_that_has_only_begun(call, run):
    shutil.rmtree(run / "checkpoints")
    (run / "progress.csv").unlink()
    (line,) = lines_of(call, run)
    assert (line["steps"], line["evaluation_return"]) == (None, None)
    assert call("runs", run)[0] == 0


@pytest.mark.parametrize("name", ["run.json", "config.json"])
@pytest.mark.parametrize("content", ["{", "[]", "{}", "null"])
def test_a_damaged_run_is_one_line_among_others(call, run, name, content):
    other = shutil.copytree(run, run.parent / "other")
    (run / name).write_text(content)
    found = {line["path"]: line["state"] for line in lines_of(call, run.parent)}
    assert found[str(other)] == "finished"
    assert found[str(run)] == (
        "damaged" if (name, content) != ("config.json", "{}") else "finished"
    )
    assert call("runs", run.parent)[0] == 0


@pytest.mark.parametrize(
    "values", [{"outcome": []}, {"outcome": {}}, {"build": {"name": 5}}, {"created": 5}], ids=str
)
def test_a_record_of_another_form_hides_no_other_run(call, run, edit, values):
    other = shutil.copytree(run, run.parent / "other")
    edit(run / "run.json", **values)
    status, output, errors = call("runs", run.parent)
    assert status == 0
    assert str(other) in output
    if "created" not in values:
        assert errors.startswith("damaged: ")
        assert str(run) in errors


@pytest.mark.parametrize("content", ["\n", f"step,a\n0,{'1' * 200_000}\n"], ids=["empty", "long"])
def test_a_log_that_cannot_be_read(call, run, content):
    (run / "progress.csv").write_text(content)
    (line,) = lines_of(call, run)
    assert (line["state"], line["steps"], line["evaluation_return"]) == ("finished", 60, None)


def test_nothing_there(call, tmp_path):
    said = f"there are no runs in {tmp_path}: found no run.json in it or below it\n"
    assert call("runs", tmp_path) == (0, said, "")
    assert lines_of(call, tmp_path) == []


def test_a_folder_without_runs_says_where_they_are_looked_for(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mistake("runs") == (
        f"parllel: there is no folder runs in {tmp_path}. Run this where you started training, or pass "
        "the folder of your runs: parllel runs FOLDER"
    )


def test_a_narrow_terminal_gets_lines_that_it_has_room_for(capsys):
    found = RunLine(
        "runs/a-run-seed12",
        "2026-11-22T02:33:11",
        "training",
        "a/b.py:build",
        12,
        15_000,
        -1.25,
        "solved",
        3.0,
    )
    damaged = RunLine("runs/b", None, None, None, None, None, None, "damaged", 0.1, "why")
    _print(Console(width=60), [found, damaged])
    assert capsys.readouterr().out.splitlines() == [
        "runs/a-run-seed12",
        "  solved, 15,000 steps, return -1.2, seed 12",
        "  2026-11-22 02:33, 3.0 MB",
        "  a/b.py:build",
        "runs/b",
        "  damaged",
        "  0.1 MB",
    ]
    _print(Console(width=80), [found, damaged])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "when", "seed", "steps", "return", "state", "size"]
    assert lines[1].split()[-3:] == ["solved", "3.0", "MB"]
    assert len(lines) == 3
    _print(Console(width=100), [found, damaged])
    assert "a/b.py:build" in capsys.readouterr().out.splitlines()[1]
