from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from parllel.cli.plot_runs import curves_of, read_curves
from parllel.cli.seed_groups import without_seed
from parllel.runs import find_runs

KEY = "evaluation/return/mean"
VALUES = {
    "ppo-seed0": {0: 1.0, 20: 3.0, 40: 7.0},
    "ppo-seed1": {0: 3.0, 40: 1.0},
    "fast-seed0": {0: 0.0, 20: 9.0},
}


@pytest.fixture
def runs(run, tmp_path):
    """Runs with two seeds, and one with another config, of which the names say so too."""
    folder = tmp_path / "three"
    for name, values in VALUES.items():
        copy = shutil.copytree(run, folder / name)
        lines = [f"{step},{value}" for step, value in values.items()]
        (copy / "progress.csv").write_text("\n".join([f"step,{KEY}", *lines, ""]))
        config = json.loads((copy / "config.json").read_text())
        config.update(seed=int(name[-1]), pause_s=float(name.startswith("fast")))
        (copy / "config.json").write_text(json.dumps(config))
    return folder


def paths_of(folder):
    return [folder / name for name in VALUES]


def curves(paths, by):
    found, problems = read_curves(paths, KEY)
    assert problems == []
    drawn, remarks = curves_of(found, by)
    assert remarks == []
    return drawn


TOGETHER = [(0, 2.0, 1.0, 3.0), (20, 2.5, 2.0, 3.0), (40, 4.0, 1.0, 7.0)]
ALONE = [(0, 0.0), (20, 9.0)]


@pytest.mark.parametrize("by", ["config", "name"])
def test_seeds_make_one_curve_with_a_band(runs, by):
    found = curves(paths_of(runs), by)
    assert found == {"ppo (2 runs)": TOGETHER, "fast-seed0": ALONE}


def test_each_run_can_have_its_own(runs):
    found = curves(paths_of(runs), "run")
    assert found == {name: list(values.items()) for name, values in VALUES.items()}


def test_other_configs_of_one_name_stay_apart(runs, edit):
    edit(runs / "ppo-seed1" / "config.json", n_steps=10)
    assert len(curves(paths_of(runs), "config")) == 3
    (runs / "more").mkdir()
    shutil.move(runs / "fast-seed0", runs / "more" / "ppo-seed0")
    paths = [runs / "ppo-seed0", runs / "more" / "ppo-seed0"]
    assert list(curves(paths, "config")) == ["ppo-seed0", "ppo-seed0 #2"]
    assert list(curves(paths, "name")) == ["ppo-seed0", "ppo-seed0 #2"]


def test_other_build_functions_stay_apart(runs, edit):
    edit(runs / "ppo-seed1" / "run.json", build={"name": "other:build"})
    assert len(curves(paths_of(runs), "config")) == 3


def test_names_without_seeds():
    names = {"ppo-seed3": "ppo", "ppo-seed3-2": "ppo-2", "SEED_4": "SEED_4", "seedling": "seedling"}
    assert {name: without_seed(name) for name in names} == names


def pixels(path):
    from matplotlib.image import imread

    return imread(path)


def test_a_picture_of_all_runs_of_a_folder(call, runs, tmp_path):
    picture = tmp_path / "new" / "all.png"
    status, output, errors = call("plot", runs, "-o", picture)
    assert (status, errors) == (0, "")
    assert output == f"2 curves of 3 runs: {picture}\n"
    assert pixels(picture).std() > 0.05
    for number, more in enumerate(([], ["--by", "run"], ["--by", "name"])):
        call("plot", *paths_of(runs), runs / "ppo-seed0", "-o", tmp_path / f"{number}.png", *more)
    np.testing.assert_array_equal(pixels(tmp_path / "2.png"), pixels(tmp_path / "0.png"))
    assert (pixels(tmp_path / "1.png") != pixels(tmp_path / "0.png")).any()


def test_a_picture_without_an_ending_is_a_png(call, run, tmp_path):
    (tmp_path / "curve").mkdir()
    status, output, _ = call("plot", run, "-o", tmp_path / "curve")
    assert (status, output) == (0, f"1 curve of 1 run: {tmp_path / 'curve.png'}\n")
    assert pixels(tmp_path / "curve.png").std() > 0.01


def test_a_picture_of_no_known_kind_is_refused_before_anything_is_read(mistake, run, tmp_path):
    (run / "progress.csv").unlink()
    line = mistake("plot", run, "-o", tmp_path / "curve.txt")
    said = f"parllel: {tmp_path / 'curve.txt'}: expected a file name that ends in ."
    assert line.startswith(said)
    assert {".png,", ".pdf,", ".svg,"} <= set(line.split())
    assert "progress.csv" in mistake("plot", run, "-o", tmp_path / "curve.SVG")


def test_another_column(call, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, _ = call("plot", run, "--key", "time/steps_per_second")
    assert (status, output) == (0, "1 curve of 1 run: curves.png\n")
    assert (tmp_path / "curves.png").exists()


def test_runs_without_numbers_are_left_out(call, runs, run, tmp_path):
    (runs / "ppo-seed1" / "progress.csv").unlink()  # a run that failed when it was put together
    (runs / "fast-seed0" / "progress.csv").write_text("")  # and one that has just begun
    picture = tmp_path / "one.png"
    status, output, errors = call("plot", runs, "-o", picture)
    assert (status, output) == (0, f"1 curve of 1 run: {picture}\n")
    left_out = errors.splitlines()
    assert [line.split(":")[0] for line in left_out] == ["left out", "left out"]
    assert "fast-seed0" in left_out[0]
    assert f"{runs / 'ppo-seed1'}: there is no progress.csv" in left_out[1]


def test_runs_that_were_logged_at_other_steps(mistake, call, runs, tmp_path):
    (runs / "ppo-seed1" / "progress.csv").write_text(f"step,{KEY}\n60,1.0\n")
    paths = paths_of(runs)[:2]
    assert "the runs have no steps in common" in mistake("plot", *paths)
    assert call("plot", *paths, "--by", "run", "-o", tmp_path / "a.png")[0] == 0


def test_what_cannot_be_drawn(mistake, run, tmp_path):
    line = mistake("plot", run, "--key", "evaluation/returns")
    assert "no column 'evaluation/returns'; did you mean 'evaluation/return" in line
    (tmp_path / "file").touch()
    assert "file" in mistake("plot", run, "-o", tmp_path / "file" / "a.png")
    assert "expected a folder that contains one or more runs, found no run.json" in mistake(
        "plot", tmp_path / "runs" / run.name / "checkpoints"
    )
    (run / "progress.csv").write_text(f"step,{KEY}\n0,nan\n")
    assert f"nothing to draw: {run}: no number under '{KEY}' yet" in mistake("plot", run)
    (run / "progress.csv").unlink()
    assert "progress.csv" in mistake("plot", run)


def test_without_matplotlib_the_extra_is_named(run):
    code = (
        "import sys; sys.modules['matplotlib'] = None; from parllel.cli import main\n"
        f"sys.exit(main(['plot', {str(run)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "parllel: plotting needs matplotlib: pip install '.[plot]' in a checkout of parllel\n"
    )


def test_runs_within_runs_and_links_are_left_alone(run, tmp_path):
    shutil.copytree(run, run / "copy")
    (tmp_path / "link").symlink_to(run, target_is_directory=True)
    assert find_runs(tmp_path) == [run]
    assert find_runs(run) == [run]
