from __future__ import annotations

import os
import re
import zipfile

import pytest

from parllel.distributed.remote.server import Actions
from parllel.distributed.remote.server.permissions import Permissions
from parllel.distributed.web import WebError
from parllel.runs import RunFolder

SOURCE = "def agent(observation):\n    return 1\n"
PROTO = {"type": "proto", "url": "http://127.0.0.1:9"}


def initialize(actions, agent):
    request = {"action": "initialize_agents", "environment": "rps", "agents": [agent]}
    return actions.handle(request)


def requests_naming(agent):
    """Return every request that can name an agent."""
    given = {"environment": "rps", "agents": [agent]}
    both = {**given, "agents": [agent, "rock"]}
    return [
        {"action": "initialize_agents", **given},
        {"action": "act", **given, "state": {"observation": {"step": 0}}},
        {"action": "run", **both},
        {"action": "evaluate", **both},
        {"action": "step", **both},
    ]


@pytest.mark.parametrize(
    ("agent", "flag"),
    [
        (SOURCE, "--allow-source"),
        ("lambda o: 1\n", "--allow-source"),
        ("http://127.0.0.1:9", "--allow-url"),
        ("https://user:secret@127.0.0.1:9/?a=b", "--allow-url"),
        (PROTO, "--allow-url"),
        ({"proto_config": {"url": "http://127.0.0.1:9"}}, "--allow-url"),
        ("by_step.py", "--agent-root"),
        ("/etc/passwd", "--agent-root"),
        ("nowhere", "--agent-root"),
    ],
)
def test_a_refusal_names_the_flag_that_would_allow_it(agent, flag):
    with Actions() as actions:
        for request in requests_naming(agent):
            with pytest.raises(WebError, match=flag) as raised:
                actions.handle(request)
            assert raised.value.status == 403
            assert "secret" not in str(raised.value)


def test_source_is_allowed_by_its_flag_alone():
    with Actions(Permissions(allow_source=True)) as actions:
        initialize(actions, SOURCE)
        request = {"action": "act", "state": {"observation": {"step": 0}}}
        assert actions.handle(request) == {"action": 1}
        with pytest.raises(WebError, match="--agent-root"):
            initialize(actions, "by_step.py")


@pytest.mark.parametrize("name", ["by_step.py", "./by_step.py", "by_step.py:agent", "sub/deep.py"])
def test_files_below_the_root_are_allowed(actions, agents, name):
    (agents / "sub").mkdir()
    (agents / "sub" / "deep.py").write_text(SOURCE)
    assert initialize(actions, name)["agent"] == name
    assert initialize(actions, str(agents / "by_step.py"))["status"] == "initialized"


def test_links_within_the_root_are_allowed(actions, agents):
    (agents / "link.py").symlink_to(agents / "by_step.py")
    assert initialize(actions, "link.py")["status"] == "initialized"


@pytest.mark.parametrize(
    "name",
    [
        "../outside.py",
        "sub/../../outside.py",
        "link.py",
        "link.py:agent",
        "folder/outside.py",
        "run",
        "{outside}/outside.py",
        "/etc/passwd",
        "~/outside.py",
    ],
)
def test_paths_and_links_out_of_the_root_are_refused(actions, agents, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (outside, tmp_path):
        (folder / "outside.py").write_text("raise SystemExit('this was executed')")
    (outside / "run.json").write_text("{}")
    (agents / "link.py").symlink_to(outside / "outside.py")
    (agents / "folder").symlink_to(outside)
    (agents / "run").symlink_to(outside)
    (agents / "sub").mkdir()
    with pytest.raises(WebError, match="--agent-root") as raised:
        initialize(actions, name.format(outside=outside))
    assert raised.value.status == (404 if name.startswith("~") else 403)
    assert str(tmp_path) not in str(raised.value)


@pytest.mark.parametrize("name", ["a\0b.py", "x" * 5000, "circle.py", "pipe.py", ".", ""])
def test_what_is_no_file_is_refused(actions, agents, name):
    os.mkfifo(agents / "pipe.py")
    (agents / "circle.py").symlink_to(agents / "circle.py")
    with pytest.raises(WebError) as raised:
        initialize(actions, name)
    assert raised.value.status in (400, 403, 404)


def build():
    """Stand for the build function of a run; nothing calls it."""


def test_a_run_whose_script_is_outside_of_the_root_is_refused(actions, agents):
    RunFolder(agents, "run").write_record(build, {"seed": 0})
    with pytest.raises(WebError, match=re.escape("the script of the run is not in the")) as raised:
        initialize(actions, "run")
    assert raised.value.status == 403


def test_a_folder_that_is_no_run_is_refused(actions, agents):
    (agents / "folder").mkdir()
    with pytest.raises(WebError, match="folder is not the folder of a run"):
        initialize(actions, "folder")


def test_the_root_must_be_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--agent-root .*nowhere: there is no such folder"):
        Permissions(tmp_path / "nowhere")


def test_folders_and_archives_are_allowed_below_the_root_only(tmp_path):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "main.py").write_text(SOURCE)
    (root / "leads-out").mkdir()
    (tmp_path / "main.py").write_text(SOURCE)
    (root / "leads-out" / "main.py").symlink_to(tmp_path / "main.py")
    (root / "neither").mkdir()
    for folder in (root, tmp_path):
        with zipfile.ZipFile(folder / "agent.zip", "w") as archive:
            archive.writestr("main.py", SOURCE)
    act = {"action": "act", "state": {"observation": {"step": 0}}}
    with Actions(Permissions(root)) as actions:
        for agent in ("folder", "agent.zip", str(root / "agent.zip")):
            assert initialize(actions, agent)["status"] == "initialized"
            assert actions.handle(act) == {"action": 1}
        for agent, status in (
            ("../agent.zip", 403),
            (str(tmp_path / "agent.zip"), 403),
            ("leads-out", 403),
            ("neither", 400),
            ("missing.zip", 404),
        ):
            with pytest.raises(WebError, match=r"agent") as raised:
                initialize(actions, agent)
            assert raised.value.status == status
