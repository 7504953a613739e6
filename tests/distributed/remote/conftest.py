from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parllel.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def kaggle_python() -> Path:
    """The Python of an environment with kaggle-environments; made once, which `make test` does beforehand."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.peers.venvs import create, python_of

    try:
        create("kaggle")
    except (RuntimeError, subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"kaggle-environments cannot be installed here: {error}")
    python = python_of("kaggle")
    assert python is not None
    return python


@pytest.fixture
def printed(capsys):
    """Return what runs a command and returns its exit status, its result, and what it said beside it."""

    def printed(*argv):
        status = main(["remote", *map(str, argv)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return printed
