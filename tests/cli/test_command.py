from __future__ import annotations

import configparser
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAVY = {"torch", "numba", "gymnasium", "matplotlib", "rich", "pygame", "imageio_ffmpeg"}


def test_help_is_quick_and_names_the_commands():
    command = [sys.executable, "-X", "importtime", "-m", "parllel.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("runs", "show", "resume", "repeat", "plot"):
        assert f"\n    {name} " in done.stdout
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "parllel" in modules
    assert not modules & HEAVY


def test_the_script_that_is_installed_is_this_command():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    line = setup["options.entry_points"]["console_scripts"].strip()
    name, _, target = line.partition(" = ")
    module, _, function = target.partition(":")
    assert name == "parllel"
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("argv", [(), ("walk",), ("show",), ("runs", "--colour")])
def test_unknown_commands_and_arguments(argv, call, capsys):
    with pytest.raises(SystemExit) as stopped:
        call(*argv)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("parllel")


COMMANDS = [("runs",), ("show",), ("resume",), ("repeat",), ("plot",)]


@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: argv[0])
def test_a_folder_that_is_not_there(argv, mistake, tmp_path):
    line = mistake(*argv, tmp_path / "nowhere")
    assert line == f"parllel: {tmp_path / 'nowhere'}: there is no such folder"


@pytest.mark.parametrize("argv", COMMANDS[1:], ids=lambda argv: argv[0])
def test_a_folder_of_no_run(argv, mistake, tmp_path):
    line = mistake(*argv, tmp_path)
    assert str(tmp_path) in line
    assert "run" in line.removeprefix("parllel: ").replace(str(tmp_path), "")


def test_where_an_error_came_from_can_be_seen(call, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
        call("--traceback", "runs", tmp_path / "nowhere")


def test_ctrl_c_is_quiet(call, monkeypatch, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("parllel.cli.list_runs.find_runs", interrupt)
    assert call("runs", tmp_path) == (130, "", "")


def test_a_reader_that_has_seen_enough(run, tmp_path):
    # head is gone before the first line comes.
    script = (
        f"{sys.executable} -m parllel.cli runs --json {run.parent} | true; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
