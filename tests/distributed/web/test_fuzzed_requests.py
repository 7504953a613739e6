"""Whatever is sent, the server has no error, keeps its memory, and answers the next request."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import httpx2
import pytest
from fuzzed_requests import fuzzed_requests, resident_bytes, send_fuzzed
from served import Served

SCRIPT = Path(__file__).parent / "serve_script.py"
BODIES = [
    json.dumps(value).encode()
    for value in (
        {"action": "act", "state": {"observation": {"step": 3, "board": [0, 1, 2] * 20}}},
        [1, -2.5e-3, None, True, {"é": "\u2028"}],
        "text",
    )
]
MAX_GROWTH = 50 << 20


def fuzz(seed, n):
    with Served(SCRIPT) as served:
        warm = fuzzed_requests(seed + 1, 200, BODIES, b"application/json")
        send_fuzzed(served.url, warm)
        before = resident_bytes(served.process.pid)
        requests = fuzzed_requests(seed, n, BODIES, b"application/json")
        statuses = send_fuzzed(served.url, requests)
        growth = resident_bytes(served.process.pid) - before
        assert httpx2.post(served.url, json=[1]).json() == [1]
        limit = time.monotonic() + 30
        while httpx2.get(f"{served.url}/running").json() > 1:
            assert time.monotonic() < limit
            time.sleep(0.05)
        served.process.send_signal(signal.SIGTERM)
        status, out, err = served.end()
    # Nothing on standard error: each line there is a mistake that was logged.
    assert (status, out, err) == (0, "ended\n", "")
    assert growth < MAX_GROWTH
    return statuses


def test_a_few_hundred():
    statuses = fuzz(0, 400)
    # It is not all refused by the first check.
    assert statuses[200] > 20
    assert statuses[400] > 20
    assert {404, 405, 413, 415, 421} & set(statuses)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand():
    statuses = fuzz(1000, 10_000)
    print(dict(statuses))
    assert statuses[200] > 500
