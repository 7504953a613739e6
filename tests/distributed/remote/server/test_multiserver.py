"""Agents on servers of their own and an orchestrator that knows their URLs, as they are deployed."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys

import asking
import pytest
from serving import http_server

from parllel.testing import Service

CURL = shutil.which("curl")
EPISODE = {"episodeSteps": 5, "tieRewardThreshold": 1}


def post(url, body):
    """Return the JSON of a reply, by curl where there is one."""
    if CURL is None:
        return asking.post(url, body).json()
    command = [CURL, "--silent", "--show-error", "--max-time", "60", "--data", json.dumps(body)]
    command += ["--header", "Content-Type: application/json", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def initialize(url, path):
    """Let the server at a URL load an agent."""
    request = {"action": "initialize_agents", "environment": "rps", "agents": [path]}
    return post(url, {**request, "configuration": EPISODE})


@pytest.fixture(scope="module")
def servers(shared_agents):
    """Two servers, each on an address of its own, and their URLs."""
    hosts = ["127.0.0.2", "127.0.0.3"]
    with Service("players") as service, contextlib.ExitStack() as stack:
        urls = []
        for host in hosts:
            flags = ("--host", host, "--agent-root", shared_agents)
            urls.append(stack.enter_context(http_server(*flags, **service.environment)))
        service.adopt_new()
        assert [url.partition("//")[2].partition(":")[0] for url in urls] == hosts
        yield urls


@pytest.fixture
def players(servers):
    """The URLs of servers without agents."""
    yield servers
    for url in servers:
        assert asking.post(url, {"action": "dispose"}).status == 200


def run(*argv, cwd):
    """Run the orchestrator as a command; return its exit status, stdout and stderr."""
    command = [sys.executable, "-m", "parllel", "remote", "run", *map(str, argv)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_the_orchestrator_as_a_command(players, tmp_path):
    told = ("--environment", "rps", "--configuration", json.dumps(EPISODE))
    files = ("--out", "out.json", "--log", "log.json")
    assert initialize(players[0], "by_step.py") == {"status": "initialized", "agent": "by_step.py"}

    # The second was never initialised.
    status, out, err = run(*told, "--agents", *players, *files, cwd=tmp_path)
    assert (status, out, err) == (1, "", "")
    episode = json.loads((tmp_path / "out.json").read_text())
    assert episode["statuses"] == ["DONE", "ERROR"]
    assert episode["rewards"][1] is None
    assert "No agent initialized" in episode["steps"][1][1]["info"]["reason"]

    initialize(players[1], "scissors")
    status, out, err = run(*told, "--agents", *players, *files, cwd=tmp_path)
    assert (status, out, err) == (0, "", "")
    episode = json.loads((tmp_path / "out.json").read_text())
    actions = [[one["action"] for one in row] for row in episode["steps"][1:]]
    assert actions == [[0, 2], [1, 2], [2, 2], [0, 2]]
    assert episode["statuses"] == ["DONE", "DONE"]
    assert episode["rewards"] == [1, -1]
    logs = json.loads((tmp_path / "log.json").read_text())
    assert [len(step) for step in logs[-4:]] == [2] * 4
    assert all(set(log) == {"duration", "stdout", "stderr"} for step in logs for log in step)


def test_the_orchestrator_as_a_server(players):
    request = {"environment": "rps", "agents": players, "configuration": EPISODE}
    with http_server("--allow-url") as orchestrator:
        initialize(players[1], "paper")
        failed = post(orchestrator, {"action": "evaluate", **request})
        assert failed[0][0] is None
        initialize(players[0], "by_step.py")
        rewards = post(orchestrator, {"action": "evaluate", "episodes": 2, **request})
        episode = post(orchestrator, {"action": "run", **request})
        assert rewards == [episode["rewards"]] * 2
        assert [row[0]["action"] for row in episode["steps"][1:]] == [0, 1, 2, 0]
    refused = post(players[0], {"action": "run", **request})
    assert "--allow-url" in refused["error"]


def test_an_agent_is_loaded_by_the_first_act_that_names_it(players):
    """As the package's own server has it, which knows no other way."""
    act = {"action": "act", "environment": "rps", "configuration": EPISODE}
    act["state"] = {"observation": {"step": 2, "remainingOverageTime": 60}}
    assert post(players[0], {**act, "agents": ["by_step.py"]}) == {"action": 2}
    assert post(players[0], act) == {"action": 2}
    assert "error" in post(players[1], act)
