from __future__ import annotations

import pytest
from policy_runs import Config, build

from parllel.runners import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory, open_fonts):
    """Return the folder of a run of some kind; none of them is changed."""
    base = tmp_path_factory.mktemp("trained")
    paths = {}

    def trained(kind, **settings):
        config = Config(kind, **settings)
        if config not in paths:
            paths[config] = train(build, config, base=base, name=kind)[1].path
        return paths[config]

    return trained
