from __future__ import annotations

import pytest
from listed_runs import BATCH, CountingAlgorithm, RowWriter

from parllel.logging import Logger
from parllel.runners import OnPolicyRunner


@pytest.fixture(autouse=True)
def fonts(open_fonts):
    """Plot once before the first test."""


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
