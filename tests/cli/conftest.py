from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_process import command
from small_build import Config, build

from parllel.cli import main
from parllel.runners import train


@pytest.fixture(scope="session", autouse=True)
def fonts(open_fonts):
    """Open them for all tests here."""


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    # A command that sets it is not to set it for the next test.
    monkeypatch.setenv("SDL_VIDEODRIVER", "")
    monkeypatch.delenv("SDL_VIDEODRIVER")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run that nobody changes."""
    base = tmp_path_factory.mktemp("trained")
    return train(build, Config(), base=base, name="small-seed0")[1].path


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "runs" / "small-seed0")


@pytest.fixture
def edit():
    """Change what a JSON file of a run's folder says."""

    def edit(path, **values):
        held = json.loads(path.read_text())
        path.write_text(json.dumps({**held, **values}))

    return edit


@pytest.fixture
def call(capsys):
    """Call `parllel` in this process and return its exit status, output and errors."""

    def call(*argv):
        status = main([str(argument) for argument in argv])
        output, errors = capsys.readouterr()
        return status, output, errors

    return call


@pytest.fixture
def mistake(call):
    """Call `parllel`, expect it to refuse, and return the one sentence that it says."""

    def mistake(*argv):
        status, _, errors = call(*argv)
        (line,) = errors.splitlines()
        assert status == 2
        assert line.startswith("parllel: ")
        return line

    return mistake


@pytest.fixture
def spawn():
    """Run `parllel` in a process of its own, from the folder of the build function."""

    def spawn(*argv, check=True, **environment):
        return subprocess.run(
            command(*argv),
            cwd=Path(__file__).parent,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=50,
            check=check,
        )

    return spawn
