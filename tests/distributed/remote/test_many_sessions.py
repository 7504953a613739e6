"""Many clients at once, each with an agent of its own on one server; and an hour of episodes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from statistics import median

import psutil
import pytest
from private_memory import private_memory
from served import Served

from parllel.distributed.remote import UrlAgent, evaluate
from parllel.distributed.remote.agent_settings import confinement_lines

ROOT = Path(__file__).parents[3]
SECONDS = float(os.environ.get("PARLLEL_SOAK_SECONDS", 3600))
# Plays one of the signs, by its name.
AGENT = "def agent(observation, configuration):\n    return (observation.step + {}) % 3\n"
CONFIGURATION = {"episodeSteps": 20, "actTimeout": 10, "agentTimeout": 60, "runTimeout": 600}
COMMON = {"environment": "rps", "configuration": CONFIGURATION}


@contextlib.contextmanager
def served(folder, *flags):
    for shift in range(3):
        (folder / f"agent{shift}.py").write_text(AGENT.format(shift))
    serve = ["-m", "parllel", "remote", "serve", "--port", 0, "--agent-root", folder, *flags]
    with Served(*serve) as server:
        yield server
        server.process.terminate()
        status, out, said = server.end()
        assert (status, out, said.splitlines()) == (0, "", confinement_lines(hidden=True))


@pytest.fixture
def raw_client(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.remote.raw_client import RawClient

    return RawClient


def requests_of(n):
    """Return what initialises and what asks the agents of so many sessions."""
    sessions = [{**COMMON, "session": f"s{number}"} for number in range(n)]
    made = [
        {**one, "action": "initialize_agents", "agents": [f"agent{number % 3}.py"]}
        for number, one in enumerate(sessions)
    ]
    seen = {"observation": {"step": 1, "remainingOverageTime": 60}}
    asked = [{**one, "action": "act", "state": seen} for one in sessions]
    return [[json.dumps(one).encode() for one in each] for each in (made, asked)]


def test_each_client_is_answered_by_its_own_agent(tmp_path, raw_client):
    made, asked = requests_of(8)
    with served(tmp_path) as server, raw_client(server.url, made) as client:
        client.once()
        with raw_client(server.url, asked) as acting:
            for _ in range(20):
                replies = [json.loads(reply)["action"] for reply in acting.once()]
                assert replies == [(1 + number) % 3 for number in range(8)]


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
def test_an_hour_of_episodes_keeps_its_memory(tmp_path):
    """PARLLEL_SOAK_SECONDS (3600) shortens or lengthens it."""
    with served(tmp_path) as server, contextlib.closing(UrlAgent(server.url, "rps")) as agent:
        agent.initialize(["agent0.py"], CONFIGURATION)
        processes = [psutil.Process(), psutil.Process(server.process.pid)]
        processes += processes[1].children(recursive=True)
        held, n, end = [], 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            rewards = evaluate("rps", [server.url, "rock"], CONFIGURATION, episodes=20)
            assert [None in one for one in rewards] == [False] * 20
            n += 20
            held.append([private_memory(process.pid) for process in processes])
        print(f"{n} episodes", file=sys.stderr)
        assert {child.pid for child in processes[1].children(recursive=True)} == {
            process.pid for process in processes[2:]
        }
    fifth = len(held) // 5
    # After a warm-up of a fifth: allocators and caches fill.
    for early, late in zip(
        zip(*held[fifth : 2 * fifth], strict=True), zip(*held[-fifth:], strict=True), strict=True
    ):
        assert median(late) < 1.05 * median(early) + (2 << 20)
