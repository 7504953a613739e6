from __future__ import annotations

import pytest

from parllel.runners import plot_learning_curve


@pytest.fixture(scope="session", autouse=True)
def open_fonts(tmp_path_factory):
    """Let matplotlib open its fonts, which it keeps, before any test is asked what it left behind."""
    path = tmp_path_factory.mktemp("fonts") / "curve.png"
    plot_learning_curve(path, {"training": [(0, 0.0), (1, 1.0)]}, "any")
