from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from parllel.runners import plot_learning_curve

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


def test_an_empty_curve_changes_nothing(tmp_path):
    plot_learning_curve(tmp_path / "one.png", {"training": CURVES["training"], "evaluation": []})
    plot_learning_curve(tmp_path / "two.png", {"training": CURVES["training"]})
    assert (pixels(tmp_path / "one.png") == pixels(tmp_path / "two.png")).all()


def test_without_matplotlib_the_extra_is_named():
    code = (
        "import sys; sys.modules['matplotlib'] = None; from parllel.runners import *\n"
        "plot_learning_curve('never.png', {})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line == "ImportError: plotting needs matplotlib: pip install parllel[plot]"
