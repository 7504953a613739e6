"""Whatever is sent to a server of agents, it has no error, keeps its memory, and its agent still answers."""

from __future__ import annotations

import json
import signal

import httpx2
import pytest
from fuzzed_requests import fuzzed_requests, resident_bytes, send_fuzzed
from served import Served

from parllel.distributed.remote.agent_settings import confinement_lines
from parllel.distributed.remote.proto import request_bytes

MAX_GROWTH = 50 << 20
AGENT = "def agent(observation, configuration):\n    return (observation.step + 1) % 3\n"
OBSERVATION = {"step": 3, "lastOpponentAction": 1, "remainingOverageTime": 2}
CONFIGURATION = {"episodeSteps": 5, "actTimeout": 1, "agentTimeout": 5, "runTimeout": 20}
COMMON = {"environment": "rps", "configuration": CONFIGURATION}
JSON_BODIES = [
    json.dumps({**COMMON, **request}).encode()
    for request in (
        {"action": "act", "state": {"observation": OBSERVATION}},
        {"action": "act", "observations": [OBSERVATION] * 3, "session": "a"},
        {
            "action": "act",
            "agents": ["rock"],
            "state": {"observation": OBSERVATION},
            "session": "b",
        },
        {"action": "initialize_agents", "agents": ["paper"], "session": "a"},
        {"action": "initialize_agents", "agents": ["agent.py"], "session": "c"},
        {"action": "dispose", "session": "b"},
        {"action": "list"},
        {"action": "run", "agents": ["rock", "paper"], "render": {"mode": "json"}},
        {"action": "evaluate", "agents": ["rock", 1], "episodes": 2, "statuses": True},
        {"action": "step", "actions": [0, 1], "steps": []},
        {"action": "load", "steps": [], "render": {"mode": "html"}},
    )
]
PROTO_BODIES = [
    request_bytes("process_turn", (OBSERVATION, CONFIGURATION), {}),
    request_bytes("process_turn", (), {"observation": OBSERVATION, "configuration": CONFIGURATION}),
    request_bytes("other", ([1, 2.5, None, b"bytes", (True, "text")],), {}),
]
WIRES = {
    "json": (JSON_BODIES, b"application/json"),
    "protobuf": (PROTO_BODIES, b"application/x-protobuf"),
}


def still_acts(url):
    """Return whether the agent does, that a request may have disposed of."""
    made = {"action": "initialize_agents", "agents": ["agent.py"], **COMMON}
    assert httpx2.post(url, json=made, timeout=60).json()["status"] == "initialized"
    request = {"action": "act", "state": {"observation": OBSERVATION}, **COMMON}
    return httpx2.post(url, json=request, timeout=60).json() == {"action": 1}


def fuzz(folder, wire, seed, n):
    bodies, content_type = WIRES[wire]
    (folder / "agent.py").write_text(AGENT)
    serve = ["-m", "parllel", "remote", "serve", "--port", 0, "--agent-root", folder]
    with Served(*serve, "--environment", "rps", "--agent", folder / "agent.py") as served:
        send_fuzzed(served.url, fuzzed_requests(seed + 1, 200, bodies, content_type), 60)
        assert still_acts(served.url)
        before = resident_bytes(served.process.pid)
        statuses = send_fuzzed(served.url, fuzzed_requests(seed, n, bodies, content_type), 60)
        growth = resident_bytes(served.process.pid) - before
        assert still_acts(served.url)
        served.process.send_signal(signal.SIGTERM)
        status, out, said = served.end()
        # Nothing else on standard error: each line there would be a mistake that was logged.
        assert (status, out, said.splitlines()) == (0, "", confinement_lines(hidden=True))
    assert growth < MAX_GROWTH
    return statuses


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.few(1)
def test_a_few_hundred(tmp_path, wire):
    statuses = fuzz(tmp_path, wire, 0, 300)
    # Neither is all refused, nor all taken.
    assert statuses[200] > 5
    assert statuses[400] > 20


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("wire", WIRES)
def test_ten_thousand(tmp_path, wire):
    statuses = fuzz(tmp_path, wire, 1000, 10_000)
    print(wire, dict(statuses))
    assert statuses[200] > 200
