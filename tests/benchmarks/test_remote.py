"""The benchmark of agents behind URLs: its report, and its client of many connections."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


RATES = {
    "UrlAgent": [2000.0, 2200.0],
    "ProtobufAgent": [1000.0, 1100.0],
    "UrlAgent, batches of 64": [8000.0, 8800.0],
    "kaggle-environments, UrlAgent": [80.0, 80.0],
}
SPREAD = {"p50": [0.01, 0.01], "p99": [0.02, 0.06], "rate": [1500.0, 1500.0]}
CPU = {"bare": [9e-5, 9e-5], "guarded": [1e-4, 1e-4], "threads": [2e-4, 2e-4]}


def report(rates):
    from benchmarks.remote.report import answers, markdown
    from benchmarks.remote.rounds import FULL

    found = [answer.as_dict() for answer in answers(rates, SPREAD, CPU)]
    machine = {"cores": 2, "cpu": "CPU", "python": "CPython 3.11"}
    whole = {"machine": machine, "settings": asdict(FULL), "rates": rates, "sessions": SPREAD}
    return found, markdown({**whole, "answers": found})


def test_each_goal_has_a_line():
    found, text = report(RATES)
    values = {answer["name"]: answer["values"] for answer in found}
    assert values["json"] == [25.0, 27.5]
    assert values["batch"] == [100.0, 110.0]
    assert values["sessions"] == pytest.approx([2.0, 6.0])
    assert values["guards"] == pytest.approx([0.9, 0.9])
    assert [answer["met"] for answer in found] == [True, None, True, False, True, None]
    assert "| UrlAgent, batches of 64 | 8,400 |" in text
    assert "1,500 round trips per second, of which half take less than 10.0 ms" in text


def test_without_the_peer_it_says_how_to_get_it():
    rates = {name: values for name, values in RATES.items() if "kaggle" not in name}
    found, text = report(rates)
    assert found[0]["values"] == []
    assert "run python benchmarks/peers/venvs.py kaggle first" in text


def test_what_guards_cost_is_measured():
    from benchmarks.remote.rounds import Effort, guards

    found = guards(Effort(rounds=1, turn_s=0.2))
    assert sorted(found) == ["bare", "guarded", "threads"]
    assert all(len(values) == 1 and values[0] > 0 for values in found.values())


def test_a_client_reports_what_a_server_refuses():
    from benchmarks.remote.raw_client import RawClient
    from parllel.distributed.web import WebServer, build_app

    with (
        WebServer(build_app([])) as server,
        RawClient(server.url, [b"1", b"2"]) as client,
        pytest.raises(RuntimeError, match=r"reply with status 200, got b'HTTP/1\.1 404"),
    ):
        client.run(0.1)
