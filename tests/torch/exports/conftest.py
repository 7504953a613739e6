from __future__ import annotations

import pytest
from export_runs import Config, build

from parllel.runners import train


@pytest.fixture(scope="session")
def run_of(tmp_path_factory, open_fonts):
    """Return the folder of a run of some kind; none of them is changed."""
    base, paths = tmp_path_factory.mktemp("exported"), {}

    def run_of(kind):
        if kind not in paths:
            paths[kind] = train(build, Config(kind), base=base, name=kind)[1].path
        return paths[kind]

    return run_of
