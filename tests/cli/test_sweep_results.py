"""Results and display of a sweep."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console
from small_build import Config

from parllel.cli.sweeps.display import Display
from parllel.cli.sweeps.folder import SweepFolder
from parllel.cli.sweeps.progress import Progress
from parllel.cli.sweeps.results import results_of, student_quantile, table_of, write_results
from parllel.cli.sweeps.scheduler import ScheduledRun
from parllel.cli.sweeps.settings import all_settings

RETURNS = {0.1: [1.0, 2.0, 6.0], 0.2: [5.0, 7.0, 9.0], 0.3: [4.0]}


@pytest.fixture
def runs(tmp_path):
    """Nine runs that have ended, but for one that failed and one that has not begun."""
    found = []
    for settings in all_settings(Config(), {"learning.rate": "0.1,0.2,0.3", "seed": "0-2"}):
        values = RETURNS[settings.values["learning.rate"]]
        run = ScheduledRun(settings, Progress(tmp_path / settings.name, "return"), "finished")
        if settings.values["seed"] < len(values):
            run.progress.curve = [(0, 0.0), (60, values[settings.values["seed"]])]
            run.progress.steps = 60
        found.append(run)
    found[7].state, found[7].error = "failed", "ValueError: [red]not finite"
    found[8].state = "waiting"
    return found


def test_quantiles_are_those_of_students_distribution():
    from scipy import stats

    for freedom in range(1, 200):
        expected = stats.t.ppf(0.975, freedom)
        assert student_quantile(freedom) == pytest.approx(
            expected, rel=5e-4 if freedom <= 30 else 0.01
        )


def test_results_are_means_over_seeds_best_first(runs):
    from scipy import stats

    found = results_of(runs)
    assert [one.settings["learning.rate"] for one in found] == [0.2, 0.3, 0.1]
    assert [one.n_seeds for one in found] == [3, 1, 3]
    for one in found:
        values = RETURNS[one.settings["learning.rate"]]
        assert one.mean == pytest.approx(np.mean(values))
        if len(values) > 1:
            low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
            assert one.deviation == pytest.approx(np.std(values, ddof=1))
            assert one.interval == pytest.approx((high - low) / 2, rel=1e-3)
        else:
            assert (one.deviation, one.interval) == (None, None)
    for run in runs:
        run.progress.curve = []
    assert [one.mean for one in results_of(runs)] == [None] * 3


def test_results_are_written(runs, tmp_path):
    folder = SweepFolder(tmp_path)
    _, remarks = write_results(folder, runs, "return")
    held = json.loads((tmp_path / "results.json").read_text())
    assert [one["settings"] for one in held["settings"]] == [
        {"learning.rate": rate} for rate in (0.2, 0.3, 0.1)
    ]
    assert [run["return"] for run in held["runs"]] == [1, 2, 6, 5, 7, 9, 4, None, None]
    assert held["runs"][7]["error"] == "ValueError: [red]not finite"
    table = (tmp_path / "results.txt").read_text()
    assert [line.split()[:2] for line in table.splitlines()[1:4]] == [
        ["0.2", "7.0"],
        ["0.3", "4.0"],
        ["0.1", "3.0"],
    ]
    assert "1 of 3" in table
    assert (
        f"ValueError: [red]not finite (log: {tmp_path}/logs/learning.rate=0.3,seed=1.log)" in table
    )
    assert (tmp_path / "curves.png").read_bytes()[1:4] == b"PNG"
    assert remarks == []


def test_remarks_on_curves_name_the_picture(runs, tmp_path):
    runs[1].progress.curve.append((90, 3.0))
    _, (remark,) = write_results(SweepFolder(tmp_path), runs, "return")
    assert remark.startswith("curves.png: cut at step 60, which all runs reach: ")


def test_values_that_all_runs_share_are_not_in_the_table(runs):
    for run in runs:
        run.settings.values["n_steps"] = 60
    console = Console(file=io.StringIO(), width=100)
    console.print(table_of(results_of(runs)))
    text = console.file.getvalue()
    assert "learning.rate" in text
    assert "n_steps" not in text


def shown(runs, tmp_path, **options):
    console = Console(file=io.StringIO(), width=100, height=10, **options)
    with Display(console, runs, 9, tmp_path) as display:
        for run in runs[:8]:
            display.show(run)
            display.show(run)
        display.announce("SIGINT")
    return console.file.getvalue()


def test_without_a_terminal_each_event_is_a_line(runs, tmp_path):
    lines = shown(runs, tmp_path).splitlines()
    assert len(lines) == 9  # one for each state, not for each call
    assert lines[0] == "[8/9] learning.rate=0.1,seed=0: finished, 60 of 60 steps, return 1.0"
    assert lines[7] == "[8/9] learning.rate=0.3,seed=1: failed: ValueError: [red]not finite"
    assert lines[8].startswith("SIGINT: ")


def test_in_a_terminal_there_is_one_table(runs, tmp_path):
    runs[3].state = "running"
    text = shown(runs, tmp_path, force_terminal=True, color_system=None)
    assert "learning.rate=0.3,seed=1  failed" in text
    last = text[text.rindex("learning.rate=0.2,seed=0") :]  # the running one is the first line
    assert "60 of 60" in last
    assert "6 finished, 1 running, 1 failed, 1 waiting" in last
    assert len(last.splitlines()) < 10
