from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest
from asking import get, post
from serving import http_server
from waiting import until

from parllel.cli import main
from parllel.system.processes.process_table import command_of, descendants, process_runs
from parllel.testing import Service

COMMAND = [sys.executable, "-m", "parllel", "remote", "serve"]
ACT = {"action": "act", "state": {"observation": {"step": 1, "remainingOverageTime": 60}}}


TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def server(shared_agents, tmp_path_factory):
    """A server of all addresses with an agent and a module of the user: its URL, and what it says."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "games_of_mine.py").write_text(
        "from parllel.distributed.remote import register\n"
        "from parllel.distributed.remote.games.rps import RockPaperScissors\n\n"
        "register('my-rps', RockPaperScissors)\n"
    )
    flags = ["--host", "0.0.0.0", "--import", folder / "games_of_mine.py", "--environment", "rps"]
    flags += ["--agent", shared_agents / "configured.py", "--configuration", '{"episodeSteps": 7}']
    with Service("remote serve") as service, (folder / "said").open("w") as said:
        variables = {**service.environment, "PARLLEL_TOKEN": TOKEN}
        with http_server(*flags, stderr=said, **variables) as url:
            service.adopt_new()
            yield url, folder / "said"


def test_an_agent_is_loaded_at_the_start(server):
    url, _ = server
    assert post(url, ACT, password=TOKEN).json() == {"action": 7}
    # That the operator named it allows nothing to requests.
    request = {"action": "initialize_agents", "environment": "rps", "agents": ["by_step.py"]}
    refused = post(url, request, password=TOKEN)
    assert (refused.status, "--agent-root" in refused.json()["error"]) == (403, True)


def test_a_module_of_the_user_registers_environments(server):
    assert "my-rps" in post(server[0], {"action": "list"}, password=TOKEN).json()


def test_the_token_comes_from_the_environment_and_is_in_no_argument(server):
    assert post(server[0], {"action": "list"}).status == 401
    assert post(server[0], {"action": "list"}, password=TOKEN).status == 200


def test_a_server_of_all_addresses_warns_and_has_a_url_that_works(server):
    url, said = server
    assert "0.0.0.0" not in url
    assert get(f"{url}/ready").json() == {"status": "ready"}
    warning = "warning: at 0.0.0.0 every machine that can reach this one can connect."
    until(lambda: warning in said.read_text())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--host", "0.0.0.0"), "--token-file FILE"),
        (
            ("--agent", "rock"),
            "expected either both --agent SPEC and --environment NAME, or neither",
        ),
        (("--agent", "nowhere.py", "--environment", "rps"), "nowhere.py"),
        (("--agent", "{agents}/broken.py", "--environment", "rps"), "broken.py"),
        (("--agent-root", "nowhere"), "--agent-root nowhere: there is no such folder"),
        (("--token-file", "nowhere"), "nowhere"),
        (("--import", "nowhere_at_all"), "nowhere_at_all"),
        (("--max-sessions", "0"), "--max-sessions"),
        (("--idle", "0"), "--idle: expected more than 0, got 0"),
        (("--idle", "nan"), "--idle: expected more than 0, got nan"),
        (("--memory", "-1"), "--memory: expected more than 0, got -1"),
        (("--port", "{taken}"), "is in use"),
    ],
)
def test_mistakes_are_one_sentence(agents, flags, message, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = [flag.format(agents=agents, taken=port) for flag in flags]
        if "--port" not in told:
            told += ["--port", "0"]
        status = main(["remote", "serve", *told])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert said.err.startswith("parllel: ")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_server_that_is_killed_leaves_no_agent(agents):
    (agents / "starts.py").write_text(
        "import subprocess\n\nsubprocess.Popen(['sleep', '4711'])\n\ndef agent(observation):\n    return 1\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--agent", agents / "starts.py", "--environment", "rps"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stdout.readline().split()[-1]
        assert post(url, ACT).json() == {"action": 1}
        started = descendants(process.pid)
        assert "sleep 4711" in {command_of(entry.pid) for entry in started}
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    # On a busy machine for longer than the guard of each test waits, which then looks for what is left.
    until(lambda: not any(process_runs(entry.pid) for entry in started))
