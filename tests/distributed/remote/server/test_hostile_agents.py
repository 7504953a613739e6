"""Agents that do harm on a server: they lose their own game, and nobody else notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import hostile_agent
import pytest
from asking import post
from serving import http_server

from parllel.distributed.remote.agent_settings import confinement_lines
from parllel.system.processes.process_table import command_of, descendants

HOSTILE = {
    "prints": "def agent(o):\n    for _ in range(100):\n        print('x' * 1_000_000)\n    return 1\n",
    "hangs": "def agent(o):\n    while True:\n        pass\n",
    "exits": "import os\n\ndef agent(o):\n    os._exit(3)\n",
    "raises": "def agent(o):\n    raise KeyboardInterrupt('no')\n",
    "forks": "import os, time\n\ndef agent(o):\n    os.fork() or time.sleep(600)\n    return 1\n",
    "allocates": "def agent(o):\n    held = [bytearray(1 << 28) for _ in range(1000)]\n    return 1\n",
    "nonsense": "def agent(o):\n    return {1, 2, object()}\n",
    "recursive": "def agent(o):\n    x = []\n    x.append(x)\n    return x\n",
    "kills": "import os, signal\n\ndef agent(o):\n    os.kill(0, signal.SIGTERM)\n    return 1\n",
}
PLAYS_ON = {"prints", "forks"}  # what it does is no reason to lose
# Far more than it takes, far less than any of them would hold others up if it could.
ANSWERED_S = 5.0


def request(session, **fields):
    """Return a request to act; the agent that hangs has a second for it."""
    observation = {"step": 0, "remainingOverageTime": 0}
    configuration = {"actTimeout": 1 if session == "hangs" else 60}
    return {
        "action": "act",
        "session": session,
        "state": {"observation": observation},
        "configuration": configuration,
        **fields,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("hostile")
    for name, source in HOSTILE.items():
        (made / f"{name}.py").write_text(source)
    (made / "good.py").write_text("def agent(o):\n    return o.step + 1\n")
    return made


def test_they_cost_their_own_game_alone(folder):
    with http_server("--agent-root", folder, "--memory", 512) as url:

        def initialize(name):
            asked = {"action": "initialize_agents", "environment": "rps", "session": name}
            reply = post(url, {**asked, "agents": [f"{name}.py"]})
            assert reply.status == 200, reply.body

        for name in ("good", *HOSTILE):
            initialize(name)
        replies, answers, slowest, ended = {}, [], [], threading.Event()

        def act(name):
            replies[name] = post(url, request(name), timeout_s=120).json()

        def watch():
            while not ended.is_set():
                begun = time.monotonic()
                answers.append(post(url, request("good"), timeout_s=60).json())
                slowest.append(time.monotonic() - begun)
                time.sleep(0.01)

        watching = threading.Thread(target=watch)
        watching.start()
        acting = [threading.Thread(target=act, args=(name,)) for name in HOSTILE]
        for thread in acting:
            thread.start()
        for thread in acting:
            thread.join(120)
        ended.set()
        watching.join(60)
        assert answers == [{"action": 1}] * len(answers)
        assert max(slowest) < ANSWERED_S
        # Once more: those that ended are there again, and the server is as it was.
        for name in HOSTILE:
            again = post(url, request(name)).json()
            assert again.get("status") == replies[name].get("status"), (name, again)
        assert post(url, request("good")).json() == {"action": 1}

    failed = {name for name, reply in replies.items() if "status" in reply}
    assert failed == HOSTILE.keys() - PLAYS_ON
    assert replies["hangs"]["status"] == "TIMEOUT"
    assert replies["nonsense"]["status"] == "INVALID"
    assert replies["exits"]["status"] == "ERROR"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="confined by means of Linux")
@pytest.mark.parametrize("confined", [True, False])
@pytest.mark.few(2)
def test_an_agent_neither_ends_the_server_nor_reads_its_variables(tmp_path, confined):
    shutil.copy(hostile_agent.__file__, tmp_path / "agent.py")
    secret, key = "a-secret-" + "3" * 30, "a-key-" + "7" * 30
    flags = ["--agent-root", tmp_path, "--agent-env", "OPENAI_API_KEY"]
    if not confined:
        # As on a machine that has neither namespaces nor Landlock.
        (tmp_path / "without.py").write_text(
            "from parllel.distributed.remote import agent_settings\n\n"
            "agent_settings._found = (agent_settings.Confinement(), 'not here')\n"
        )
        flags += ["--import", tmp_path / "without.py"]
    with http_server(*flags, SECRET_OF_SERVER=secret, OPENAI_API_KEY=key) as url:
        asked = {"action": "initialize_agents", "environment": "rps", "agents": ["agent.py"]}
        assert post(url, asked).status == 200
        (server,) = [
            entry.pid
            for entry in descendants(os.getpid())
            if "remote serve" in command_of(entry.pid)
        ]

        def ask(do, secret):
            # Backwards, so that the request does not bring it there.
            names = {"do": do, "server": server, "beside": server, "secret": secret[::-1]}
            observation = {"step": 0, "remainingOverageTime": 60, **names}
            return post(url, {"action": "act", "state": {"observation": observation}}).json()

        nothing = {"action": []}
        # In a container, for instance, the system may refuse namespaces.
        promised = "".join(confinement_lines(hidden=True)) if confined else ""
        for do, promise in (
            ("signals", "signal the server and other processes: holds"),
            ("limits", "change the limits and priorities of other processes: holds"),
        ):
            if promise in promised:
                assert ask(do, secret) == nothing
        assert server not in ask("attach", secret)["action"]
        # Nor is it in a process that the server has started.
        assert ask("read", secret) == nothing
        assert ask("memory", secret) == nothing
        # What it is given it has, and it looked in the right places.
        assert ask("memory", key)["action"]
        assert ask("variable", key) == {"action": key}
        assert post(url, {"action": "list"}).status == 200


def test_the_operator_is_told_what_confines_agents(tmp_path):
    command = [sys.executable, "-m", "parllel", "remote", "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--agent-root", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith("serving on http://")
        process.terminate()
        said = process.stderr.read().splitlines()
    assert said == confinement_lines(hidden=True)
    assert len(said) == 6
