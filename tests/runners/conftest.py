from __future__ import annotations

import pytest
from listed_runs import BATCH, CountingAlgorithm, RowWriter

from parllel.logging import Logger
from parllel.runners import OnPolicyRunner, plot_learning_curve


@pytest.fixture(scope="session", autouse=True)
def open_fonts(tmp_path_factory):
    """Let matplotlib open its fonts, which it keeps, before any test is asked what it left behind."""
    path = tmp_path_factory.mktemp("fonts") / "curve.png"
    plot_learning_curve(path, {"training": [(0, 0.0), (1, 1.0)]}, "any")


@pytest.fixture
def writer():
    return RowWriter()


@pytest.fixture
def make_runner(writer):
    def make(sampler, algorithm=None, **options):
        algorithm = CountingAlgorithm() if algorithm is None else algorithm
        arguments = {"n_steps": 60, "log_interval_steps": 20, "logger": Logger([writer]), **options}
        return OnPolicyRunner(BATCH, sampler, algorithm, **arguments)

    return make
