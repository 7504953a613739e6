"""A run's folder names a script, which is executed to put the run together again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

COMMANDS = ("show", "play", "resume", "repeat")
SCRIPT = """
from pathlib import Path
Path({mark!r}).write_text("executed")
from small_build import Config, build
"""


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark"


@pytest.fixture
def script(tmp_path, mark):
    """A script in another folder than that of the command."""
    path = tmp_path / "elsewhere" / "train.py"
    path.parent.mkdir()
    path.write_text(SCRIPT.format(mark=str(mark)))
    return path


@pytest.fixture
def name(run, edit):
    """Let the run's folder name a file as its script."""

    def name(file):
        for key in ("build", "config_class"):
            held = json.loads((run / "run.json").read_text())[key]
            function = held["name"].partition(":")[2]
            file = None if file is None else str(file)
            edit(run / "run.json", **{key: {**held, "name": f"__main__:{function}", "file": file}})

    return name


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder that the command is started in."""
    path = tmp_path / "here"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_script_of_another_folder_is_refused(mistake, here, run, script, name, mark, command):
    name(script)
    said = mistake(command, run)
    assert f"this would execute {script}, which is not in {here}; go to the folder" in said
    assert "--trust" in said
    assert not mark.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_script_of_another_folder_is_executed_if_it_is_trusted(
    call, here, run, script, name, mark, command
):
    name(script)
    status, _, errors = call(command, run, "--trust", *(["n_steps=80"] * (command == "resume")))
    assert (status, errors) == (0, "")
    assert mark.read_text() == "executed"


IN_CARTPOLE = ("--environment", "gymnasium/CartPole-v1")
AGENTS = {
    "run": ("--agents",),
    "evaluate": ("--agents",),
    "step": ("--agents",),
    "serve": ("--port", "0", "--agent"),
}


@pytest.mark.parametrize("command", AGENTS)
def test_an_agent_whose_script_is_elsewhere_is_refused(
    mistake, here, run, script, name, mark, command
):
    name(script)
    # As JSON names it, too.
    for agent in (run, json.dumps(str(run))):
        said = mistake("remote", command, *IN_CARTPOLE, *AGENTS[command], agent)
        assert f"this would execute {script}, which is not in {here}; go to the folder" in said
        assert "--trust" in said
    assert not mark.exists()


def test_an_agent_that_is_trusted_plays(call, here, run, script, name, mark):
    name(script)
    played = (*IN_CARTPOLE, "--configuration", '{"agentTimeout": 300, "actTimeout": 60}')
    status, output, errors = call("remote", "evaluate", *played, "--trust", "--agents", run)
    assert (status, errors) == (0, "")
    assert json.loads(output)[0][0] >= 8
    assert mark.read_text() == "executed"


def test_an_agent_that_the_user_names_by_its_file_is_executed(call, here, tmp_path):
    (tmp_path / "left.py").write_text("def left():\n    return 0\n")
    status, output, errors = call(
        "remote", "evaluate", *IN_CARTPOLE, "--agents", tmp_path / "left.py"
    )
    assert (status, errors) == (0, "")
    assert 8 <= json.loads(output)[0][0] <= 11


def test_a_script_below_the_folder_is_executed(call, here, run, script, name, mark):
    own = shutil.copytree(script.parent, here / "deep" / "er")
    name(own / "train.py")
    assert call("resume", run, "n_steps=80")[0] == 0
    assert mark.read_text() == "executed"


def test_links_and_ways_around_are_followed(mistake, here, run, script, name, mark):
    (here / "link.py").symlink_to(script)
    (here / "folder").symlink_to(script.parent)
    sibling = here.with_name("here-too")  # whose path begins like that of the folder
    shutil.copytree(script.parent, sibling)
    ways = {
        here / "link.py": script,
        here / "folder" / "train.py": script,
        here / ".." / "elsewhere" / "train.py": script,
        Path(os.path.relpath(script)): script,
        sibling / "train.py": sibling / "train.py",
    }
    for way, where in ways.items():
        name(way)
        assert f"this would execute {where}, which is not in {here}" in mistake("show", run)
    assert not mark.exists()


def test_a_script_that_came_with_the_run_is_refused(mistake, run, script, name, mark, monkeypatch):
    monkeypatch.chdir(run.parent)
    inside = shutil.copy(script, run / "train.py")
    for way in (inside, Path(run.name) / "train.py"):
        name(way)
        assert f"{inside}, which is in the run's own folder" in mistake("resume", run)
    assert not mark.exists()


def test_a_module_is_looked_at_as_well(mistake, here, run, edit):
    # One that is installed, and none of those that put a run together.
    for reference in (
        {"name": "os:system", "file": None},
        {"name": "os:system", "file": os.__file__},
    ):
        edit(run / "run.json", build={**reference, "problem": None})
        assert f"execute {reference['file'] or 'os:system'}, which is not in" in mistake(
            "show", run
        )


def test_the_class_of_the_config_is_looked_at_as_well(mistake, run, edit, script, mark):
    edit(
        run / "run.json",
        config_class={"name": "__main__:Config", "file": str(script), "problem": None},
    )
    assert f"this would execute {script}" in mistake("resume", run)
    assert not mark.exists()


@pytest.mark.parametrize("command", [*COMMANDS, *AGENTS])
def test_help_says_so(call, capsys, command):
    with pytest.raises(SystemExit, match=r"^0$"):
        call(*(["remote"] if command in AGENTS else []), command, "--help")
    said = " ".join(capsys.readouterr().out.split())
    of_agents = "Files are executed, as are the scripts of run folders"
    folder = "This executes the script recorded in the run's folder"
    assert (of_agents if command in AGENTS else folder) in said
    assert "--trust" in said
