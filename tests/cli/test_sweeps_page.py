"""The commands of docs/sweeps.md run as a reader would run them, with the script that the page names."""

from __future__ import annotations

import json

from shell_pages import ROOT, blocks_of, run_lines


def page(name):
    return (ROOT / "docs" / name).read_text()


def test_the_first_command_of_the_page(tmp_path):
    (tmp_path / "train.py").write_text(blocks_of(page("runs.md"), "python")[0])
    first = blocks_of(page("sweeps.md"), "sh")[0]
    output = run_lines(first, tmp_path)
    header = blocks_of(page("sweeps.md"), "text")[0].splitlines()[0]
    assert header.split() in [line.split() for line in output.splitlines()]
    held = json.loads((tmp_path / "runs" / "rates" / "results.json").read_text())
    assert [one["n_seeds"] for one in held["settings"]] == [2, 2]
    assert {run["state"] for run in held["runs"]} == {"finished"}


def test_the_study_of_the_page(tmp_path):
    (tmp_path / "train.py").write_text(blocks_of(page("runs.md"), "python")[0])
    lines = blocks_of(page("sweeps.md"), "sh")[1]
    assert "--trials 6" in lines
    run_lines(lines.replace("--trials 6", "--trials 3"), tmp_path)
    held = json.loads((tmp_path / "runs" / "study" / "results.json").read_text())
    assert len(held["runs"]) == 3
    assert {run["state"] for run in held["runs"]} <= {"finished", "pruned"}
