from __future__ import annotations

import configparser
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parllel.cli import main
from parllel.cli.command import DECLARATIONS
from parllel.errors import add_note, install_command
from parllel.runs import RunFolder

ROOT = Path(__file__).parent.parent.parent
# What extras bring, and what is slow to import.
HEAVY = {
    *("torch", "matplotlib", "tensorboard", "imageio_ffmpeg", "tyro", "pygame", "msgspec"),
    *("ray", "jsonschema", "h11", "httpx2", "google", "confluent_kafka"),
    *("numba", "gymnasium", "cloudpickle", "rich"),
}


def test_help_is_quick_and_names_the_commands():
    command = [sys.executable, "-X", "importtime", "-m", "parllel", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in (
        "runs",
        "show",
        "play",
        "resume",
        "repeat",
        "plot",
        "remote",
        "operators",
        "messaging",
    ):
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


DECLARED = """
def add_commands(commands):
    cart = commands.add_parser("cart", help="use a cart")
    nested = cart.add_subparsers(required=True, metavar="COMMAND")
    push = nested.add_parser("push", help="push the cart")
    push.add_argument("--times", type=int, default=1)
    push.add_argument("names", nargs="*")
    push.set_defaults(call="cart_push:push", rest="names", extra="carts")
"""


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """Return what calls `parllel` with a nested command of another package, whose module is given."""

    def declared(module, *argv):
        (tmp_path / "cart_commands.py").write_text(DECLARED)
        (tmp_path / "cart_push.py").write_text(module)
        return main(argv, (*DECLARATIONS, "cart_commands"))

    monkeypatch.syspath_prepend(tmp_path)
    yield declared
    for name in ("cart_commands", "cart_push"):
        sys.modules.pop(name, None)


def test_a_package_declares_a_nested_command(declared, capsys):
    module = "def push(arguments):\n    print(arguments.times, arguments.names)\n    return 3\n"
    assert declared(module, "cart", "push", "a", "--times", "2", "b") == 3
    assert capsys.readouterr().out == "2 ['a', 'b']\n"
    for argv in (["--help"], ["cart", "--help"], ["cart", "push", "--help"]):
        with pytest.raises(SystemExit, match=r"^0$"):
            declared(module, *argv)
    helps = capsys.readouterr().out
    for said in ("\n    cart ", "\n    push ", "--times"):
        assert said in helps
    with pytest.raises(SystemExit, match=r"^2$"):
        declared(module, "cart")
    assert "required: COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["resume", "repeat"])
def test_what_is_missing_is_the_run_and_not_the_changes(name, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([name])
    said = capsys.readouterr().err
    assert "RUN [KEY=VALUE ...]\n" in said
    assert said.endswith("the following arguments are required: RUN\n")


def test_a_nested_command_shows_the_traceback_of_an_error(declared, capsys):
    module = "def push(arguments):\n    raise ValueError('the cart is stuck')\n"
    assert declared(module, "cart", "push") == 2
    assert capsys.readouterr().err.startswith("parllel: the cart is stuck (")
    for argv in (["cart", "push", "--traceback"], ["cart", "--traceback", "push"]):
        with pytest.raises(ValueError, match="the cart is stuck"):
            declared(module, *argv)


def test_the_extra_of_a_missing_library_is_named(declared, capsys):
    assert declared("import wheels_that_are_not_there", "cart", "push") == 2
    line = f"parllel: this command needs wheels_that_are_not_there: {install_command('carts')}"
    assert capsys.readouterr().err.startswith(line)


def test_a_missing_module_of_parllel_itself_names_no_extra(declared, capsys):
    assert declared("import parllel.wheels", "cart", "push") == 2
    assert "No module named 'parllel.wheels'" in capsys.readouterr().err


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


def test_ctrl_c_says_what_is_known_of_it(call, monkeypatch, tmp_path):
    def interrupt(*arguments):
        error = KeyboardInterrupt()
        add_note(error, "SIGINT while it was being put together")
        raise error

    monkeypatch.setattr("parllel.cli.list_runs.find_runs", interrupt)
    said = "parllel: SIGINT while it was being put together\n"
    assert call("runs", tmp_path) == (130, "", said)


@pytest.mark.parametrize("argv", [("runs", "--json"), ("runs",)], ids=" ".join)
def test_a_reader_that_closes_the_pipe(run, argv):
    # `true` has exited before the first line is written.
    line = f"{sys.executable} -m parllel {' '.join(argv)} {run.parent}"
    script = f"{line} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def buffered():
    """Return the environment of a program that keeps what it could not write, as most do."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_a_table_that_cannot_be_written_is_an_error(run):
    script = f"{sys.executable} -m parllel runs {run.parent} > /dev/full"
    command = ["bash", "-c", script]
    done = subprocess.run(command, env=buffered(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"parllel: .*No space left on device.*\n", done.stderr)


@pytest.mark.parametrize("output", ["> /dev/full", "| true", ">&-"])
@pytest.mark.few(1)
def test_a_run_succeeds_without_a_reader_of_its_output(run, output):
    line = f"{sys.executable} -m parllel resume {run} n_steps=100 {output}"
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"],
        env={**buffered(), "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    record = RunFolder.open(run).read_record()
    assert record.outcome["elapsed_steps"] == 100


def test_a_table_without_standard_output(run):
    script = f"{sys.executable} -m parllel runs {run.parent} >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_breaks_within_a_training_is_no_success(call, run, monkeypatch):
    def fail(*arguments):
        raise BrokenPipeError("a worker is gone")

    monkeypatch.setattr("small_build.Waiting.optimize_agent", fail)
    with pytest.raises(BrokenPipeError, match="a worker is gone"):
        call("resume", run, "n_steps=100")
