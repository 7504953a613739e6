"""Agents that do harm on a server: they lose their own game, and nobody else notices."""

from __future__ import annotations

import threading
import time

import pytest
from asking import post
from serving import http_server

pytestmark = pytest.mark.timeout(180)

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
