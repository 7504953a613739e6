"""What becomes of runs of one group that did not all end at the same step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from parllel.cli.plot_runs import curves_of, read_curves
from parllel.cli.seed_groups import Member, join
from parllel.runners import resume
from parllel.runs import RunFolder

KEY = "evaluation/return/mean"


def run_of(state, *points, name=None):
    return Member(
        Path(name or state), [(float(step), float(value)) for step, value in points], state
    )


FULL = run_of("finished", (0, 0), (50, 5), (100, 10))


def test_a_solved_run_keeps_its_last_value():
    for state, what in (("solved", "was solved"), ("ended", "was ended by a callback")):
        curve, joined, remarks = join([FULL, run_of(state, (0, 2), (50, 20))])
        assert (curve, joined) == ([(0, 1, 0, 2), (50, 12.5, 5, 20), (100, 15, 10, 20)], 2)
        assert remarks == [f"extended: {state}: {what} at step 50; it keeps its last value to 100"]


@pytest.mark.parametrize(
    ("state", "what"),
    [("failed", "failed"), ("stopped", "was stopped"), ("running", "is still running")],
)
def test_a_run_that_did_not_get_there_is_left_out(state, what):
    short = run_of(state, (0, 2), (50, 20))
    curve, joined, remarks = join([short, FULL, FULL])
    assert (curve, joined) == ([(0, 0, 0, 0), (50, 5, 5, 5), (100, 10, 10, 10)], 2)
    assert remarks == [f"left out: {state}: {what} at step 50; the others reach 100"]
    far = run_of(state, (0, 2), (100, 20))  # it failed after its last row, say
    assert join([far, FULL])[1:] == (2, [])


def test_all_runs_are_solved():
    runs = [
        run_of("solved", (0, 0), (20, 9), name="a"),
        run_of("solved", (0, 1), (40, 7), name="b"),
    ]
    curve, joined, remarks = join(runs)
    assert (curve, joined) == ([(0, 0.5, 0, 1), (20, 6.5, 4, 9), (40, 8, 7, 9)], 2)
    assert remarks == ["extended: a: was solved at step 20; it keeps its last value to 40"]


def test_runs_that_are_under_way_end_where_the_slowest_is():
    runs = [run_of("running", (0, 0), (end, end), name=str(end)) for end in (60, 100, 80)]
    solved = run_of("solved", (0, 0), (20, 9))
    killed = run_of("failed", (0, 0), (1, 1))
    curve, joined, remarks = join([*runs, solved, killed])
    assert (curve[-1][0], joined, len(remarks)) == (60, 4, 3)
    assert remarks[-1] == "cut at step 60, which all runs reach: 100 reaches 100"
    # One that has only just begun does not make a dot of the others.
    curve, joined, remarks = join([*runs, run_of("running", (0, 0), (10, 1))])
    assert (curve[-1][0], joined) == (60, 3)
    assert remarks[0] == "left out: running: is still running at step 10; the others reach 60"


def test_runs_of_which_none_came_to_its_end():
    runs = [run_of("failed", (0, 0), (end, end), name=str(end)) for end in (10, 100, 60)]
    curve, joined, remarks = join(runs)
    assert (curve[-1][0], joined) == (60, 2)
    assert [remark.partition(":")[0] for remark in remarks] == [
        "left out",
        "cut at step 60, which all runs reach",
    ]


def test_runs_of_different_lengths_are_cut_and_it_is_said():
    longer = run_of("finished", (0, 0), (200, 20), name="longer")
    curve, joined, remarks = join([FULL, longer])
    assert (curve[-1], joined) == ((100, 10, 10, 10), 2)
    assert remarks == ["cut at step 100, which all runs reach: longer reaches 200"]


# ---------------------------------------------------------------------- folders


@pytest.fixture
def seeds(run, tmp_path, edit):
    """Three runs of one config, of which the second failed and the third was solved."""
    folder = tmp_path / "seeds"
    values = {0: {0: 1, 20: 2, 40: 3}, 1: {0: 8}, 2: {0: 5, 20: 6}}
    for seed, logged in values.items():
        copy = shutil.copytree(run, folder / f"ppo-seed{seed}")
        lines = [f"{step},{value}" for step, value in logged.items()]
        (copy / "progress.csv").write_text("\n".join([f"step,{KEY}", *lines, ""]))
        edit(copy / "config.json", seed=seed)
    outcome = json.loads((copy / "run.json").read_text())["outcome"]
    edit(folder / "ppo-seed1" / "run.json", outcome=None)
    edit(folder / "ppo-seed2" / "run.json", outcome={**outcome, "solved": True})
    return folder


def test_what_was_done_is_printed(call, seeds, tmp_path):
    status, output, errors = call("plot", seeds, "-o", tmp_path / "a.png")
    assert (status, output) == (0, f"1 curve of 3 runs: {tmp_path / 'a.png'}\n")
    assert errors.splitlines() == [
        f"left out: {seeds / 'ppo-seed1'}: failed at step 0; the others reach 40",
        f"extended: {seeds / 'ppo-seed2'}: was solved at step 20; it keeps its last value to 40",
    ]
    found, _ = read_curves(sorted(seeds.iterdir()), KEY)
    curves, _ = curves_of(found, "config")
    assert curves == {"ppo (2 of 3 runs)": [(0, 3, 1, 5), (20, 4, 2, 6), (40, 4.5, 3, 6)]}


def test_a_run_without_a_record_counts_as_failed(call, seeds, tmp_path):
    (seeds / "ppo-seed2" / "run.json").write_text("{}")
    _, _, errors = call("plot", seeds, "-o", tmp_path / "a.png", "--by", "name")
    assert [line.partition(":")[0] for line in errors.splitlines()] == ["left out", "left out"]


@pytest.mark.parametrize("key", ["n_steps", "target_return"])
def test_a_longer_run_stays_with_its_seeds(seeds, edit, key):
    for path in seeds.iterdir():
        edit(path / "config.json", target_return=None)
    changed = seeds / "ppo-seed0"
    held = json.loads((changed / "config.json").read_text())

    def note(path, value):
        config = {**held, path: value} if "." not in path else held
        RunFolder.open(changed).note_resume(40, {path: value}, config)
        found, _ = read_curves(sorted(seeds.iterdir()), KEY)
        return list(curves_of(found, "config")[0])

    for value in (5000, 7000):
        assert note(key, value) == ["ppo (2 of 3 runs)"]
    assert json.loads((changed / "config.json").read_text())[key] == 7000
    history = json.loads((changed / "run.json").read_text())["history"]
    assert [entry["before"] for entry in history] == [{key: held[key]}, {key: 5000}]
    held[key] = 7000
    assert len(note("pause_s", 3.0)) == 2  # another experiment from there on


def test_a_resume_writes_down_what_was_before(run):
    resume(run, changes={"n_steps": 80, "learning.rate": 0.5})
    (entry,) = RunFolder.open(run).read_record().history
    assert entry["before"] == {"n_steps": 60, "learning.rate": 1e-3}
