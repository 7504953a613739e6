from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.pictures import curve_with_band, plot_learning_curve
from parllel.pictures.learning_curve import read_curve

CURVES = {"training": [(0, 1.0), (100, 5.0)], "evaluation": [(0, 2.0), (100, 9.0)]}


def pixels(path):
    from matplotlib.image import imread

    return imread(path)


def test_the_picture_can_be_read_and_shows_something(tmp_path):
    path = tmp_path / "curve.png"
    plot_learning_curve(path, CURVES, "a title")
    image = pixels(path)
    assert image.shape[:2] == (504, 840)  # 7 x 4.2 inches at 120 dots
    assert image.std() > 0.05
    other = tmp_path / "other.png"
    plot_learning_curve(other, {**CURVES, "evaluation": [(0, 2.0), (100, 3.0)]}, "a title")
    assert (pixels(other) != image).any()


@pytest.mark.parametrize("curves", [{}, {"training": []}, {"training": [(0, float("nan"))]}])
def test_there_may_be_nothing_to_show(tmp_path, curves):
    plot_learning_curve(tmp_path / "curve.png", curves)
    assert np.isfinite(pixels(tmp_path / "curve.png")).all()


def test_names_are_no_tex(tmp_path):
    name = r"costs $\wrong$"
    plot_learning_curve(tmp_path / "curve.png", {name: CURVES["training"]}, name, ylabel=name)
    assert pixels(tmp_path / "curve.png").std() > 0.05


def test_an_empty_curve_changes_nothing(tmp_path):
    plot_learning_curve(tmp_path / "one.png", {"training": CURVES["training"], "evaluation": []})
    plot_learning_curve(tmp_path / "two.png", {"training": CURVES["training"]})
    assert (pixels(tmp_path / "one.png") == pixels(tmp_path / "two.png")).all()


def test_without_matplotlib_the_extra_is_named():
    code = (
        "import sys; sys.modules['matplotlib'] = None; from parllel.pictures import *\n"
        "plot_learning_curve('never.png', {})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert (
        last_line
        == "ImportError: plotting needs matplotlib: pip install '.[plot]' in a checkout of parllel"
    )


def test_a_band_is_drawn(tmp_path):
    thin = [(0, 1.0, 1.0, 1.0), (100, 5.0, 5.0, 5.0)]
    wide = [(0, 1.0, 0.0, 2.0), (100, 5.0, 4.0, 9.0)]
    for name, curve in (("thin", thin), ("wide", wide)):
        plot_learning_curve(tmp_path / f"{name}.png", {"a": [(0, 0.0), (0, 10.0)], "b": curve})
    difference = pixels(tmp_path / "thin.png") != pixels(tmp_path / "wide.png")
    assert 0.05 < difference.any(axis=-1).mean() < 0.6


def test_the_axis_is_named(tmp_path):
    plot_learning_curve(tmp_path / "one.png", CURVES)
    plot_learning_curve(tmp_path / "two.png", CURVES, ylabel="length")
    assert (pixels(tmp_path / "one.png") != pixels(tmp_path / "two.png")).any()


def at(curve, step):
    """Return the value of a curve at a step, by a straight line between its neighbours."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left <= step <= right:
            return low + (high - low) * (step - left) / (right - left)
    (only,) = (value for at, value in curve if at == step)
    return only


CURVE = st.dictionaries(st.integers(0, 40), st.integers(-50, 50), max_size=6)


@given(st.lists(CURVE, max_size=4))
def test_curves_of_several_runs_become_one(values):
    curves = [[(step, float(one[step])) for step in sorted(one)] for one in values]
    found = curve_with_band(curves)
    curves = [curve for curve in curves if curve]
    if not curves:
        assert found == []
        return
    begin, end = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    steps = sorted({step for curve in curves for step, _ in curve if begin <= step <= end})
    assert [point[0] for point in found] == steps
    for step, mean, low, high in found:
        here = [at(curve, step) for curve in curves]
        assert (mean, low, high) == pytest.approx((sum(here) / len(here), min(here), max(here)))


TABLE = """step,evaluation/return/mean,training/return/mean,note
0,1.5,,x
100,,2.0,
200,nan,3.5,
300,inf,-1e2,
400,7,4.25,
500,9"""


def test_a_column_is_read(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text(TABLE)
    assert read_curve(path) == [(0, 1.5), (400, 7)]
    expected = [(100, 2), (200, 3.5), (300, -100), (400, 4.25)]
    assert read_curve(path, "training/return/mean") == expected
    assert [step for step, _ in read_curve(path, "step")] == [0, 100, 200, 300, 400]
    assert read_curve(path, "note") == []


def test_columns_that_are_not_there(tmp_path):
    path = tmp_path / "progress.csv"
    with pytest.raises(FileNotFoundError, match=r"progress\.csv"):
        read_curve(path)
    path.write_text("")
    with pytest.raises(ValueError, match="no column 'loss', as it has no rows yet"):
        read_curve(path, "loss")
    path.write_text(TABLE)
    with pytest.raises(
        ValueError, match="no column 'eval/return'; did you mean 'evaluation/return"
    ):
        read_curve(path, "eval/return")
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"whose first column is 'step', got \['a', 'b'\]"):
        read_curve(path)
