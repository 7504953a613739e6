from __future__ import annotations

import configparser
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parllel.runs import RunFolder

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


@pytest.mark.parametrize("name", ["runs", "plot"])
def test_a_file_in_place_of_a_folder(name, mistake, tmp_path):
    (tmp_path / "log.txt").touch()
    line = mistake(name, tmp_path / "log.txt")
    assert line == f"parllel: {tmp_path / 'log.txt'}: expected a folder, got a file"


def test_where_an_error_came_from_can_be_seen(call, tmp_path):
    for argv in (["--traceback", "runs"], ["runs", "--traceback"]):
        with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
            call(*argv, tmp_path / "nowhere")


def test_an_error_in_the_code_of_others_says_where(mistake, run, monkeypatch):
    def build(config, stack, folder, console):
        return len(None)

    monkeypatch.setattr("small_build.build", build)
    line = mistake("resume", run, "n_steps=100")
    expected = "object of type 'NoneType' has no len()"
    place = f"{__file__}:{build.__code__.co_firstlineno + 1}"
    assert line == f"parllel: {expected} ({place}; --traceback shows more)"


def test_a_script_that_fails_when_it_is_imported_says_where(mistake, run, edit, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import math\n\nprint(maths.pi)\n")
    edit(run / "run.json", build={"name": "__main__:build", "file": str(script)})
    for name in ("resume", "repeat", "show"):
        line = mistake(name, run, "--trust", *(["n_steps=100"] if name == "resume" else []))
        assert "train.py: cannot be imported: NameError: name 'maths' is not defined" in line
        assert line.endswith(f"({script}:3; --traceback shows more)")


def test_a_package_is_found_from_where_its_runs_are_begun(run, edit, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "parts.py").write_text("from small_build import build\n")
    module = tmp_path / "project" / "train.py"
    module.write_text("from .parts import build\n")
    edit(run / "run.json", build={"name": "project.train:build", "file": str(module)})
    # As the command is installed: Python puts the folder of this script first, and not ours.
    script = tmp_path / "bin" / "parllel"
    script.parent.mkdir()
    script.write_text("from parllel.cli import main\nraise SystemExit(main())\n")
    done = subprocess.run(
        [sys.executable, str(script), "repeat", str(run)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_is_quiet(call, monkeypatch, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("parllel.cli.list_runs.find_runs", interrupt)
    assert call("runs", tmp_path) == (130, "", "")


@pytest.mark.parametrize("argv", [("runs", "--json"), ("runs",)], ids=" ".join)
def test_a_reader_that_has_seen_enough(run, argv):
    # head is gone before the first line comes.
    line = f"{sys.executable} -m parllel.cli {' '.join(argv)} {run.parent}"
    script = f"{line} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("output", ["> /dev/full", "| true", ">&-"])
def test_a_run_whose_end_nobody_reads_of(run, output):
    line = f"{sys.executable} -m parllel.cli resume {run} n_steps=100 {output}"
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    record = RunFolder.open(run).read_record()
    assert record.outcome["elapsed_steps"] == 100


def test_a_table_nobody_can_see(run):
    script = f"{sys.executable} -m parllel.cli runs {run.parent} >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_breaks_within_a_training_is_no_success(call, run, monkeypatch):
    def fail(*arguments):
        raise BrokenPipeError("a worker is gone")

    monkeypatch.setattr("small_build.Waiting.optimize_agent", fail)
    with pytest.raises(BrokenPipeError, match="a worker is gone"):
        call("resume", run, "n_steps=100")
