"""The benchmark of messages: its report, and the sides that it measures."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def report():
    from benchmarks.messaging.hosts import MEMORY, ONE_PROCESS, TWO_HOSTS
    from benchmarks.messaging.report import answers
    from benchmarks.messaging.rounds import (
        CALLS,
        CALLS_FOUR,
        ENCODED,
        ENCODED_FOUR,
        FULL,
        REFERENCES,
    )

    measured = {
        "delay_s": 0.02,
        "grown_bytes": {"steps": 0.0, "renames": 2.0**22},
        "grown_after": {"steps": 20_000, "renames": 1000},
        "steps_s": {
            CALLS: [1e-3, 1e-3],
            REFERENCES: [3e-3, 3e-3],
            ENCODED: [9e-3, 11e-3],
            CALLS_FOUR: [1e-3, 1e-3],
            ENCODED_FOUR: [12e-3, 12e-3],
        },
        "delayed_s": [0.1, 0.1],
        "kafka_s": {"mock": {"hops": [0.0704, 0.0704], "single": [1e-3, 1e-3]}},
        "sizes_s": {
            "message": {"1": [5e-6, 5e-6], "128": [4e-6, 4e-6], "8192": [6e-6, 6e-6]},
            "reset": {"1": [5e-5, 5e-5], "128": [5e-5, 5e-5], "8192": [2e-4, 2e-4]},
        },
        "wire": {
            "addresses": 2816,
            "address_bytes": 900.0,
            "scalar_records": 512,
            "scalar_bytes": 28_160,
            "four_floats_bytes": 56_320,
        },
        "hosted_envs": 128,
        "hosted_s": {
            MEMORY: {ONE_PROCESS: [0.02, 0.02]},
            "mock": {ONE_PROCESS: [0.02816, 0.02816], TWO_HOSTS: [0.10752, 0.05376]},
        },
    }
    return {
        "machine": {"cores": 2, "cpu": "CPU", "python": "CPython 3.11"},
        "settings": asdict(FULL),
        **measured,
        "answers": [one.as_dict() for one in answers(measured)],
    }


def test_each_goal_has_a_line():
    from benchmarks.messaging.report import markdown, wire_markdown

    whole = report()
    found, text, wire = whole["answers"], markdown(whole), wire_markdown(whole)
    values = {answer["name"]: answer["values"] for answer in found}
    assert values["references"] == pytest.approx([3.0, 3.0])
    assert values["four"] == pytest.approx([12.0, 12.0])
    assert values["delay"] == pytest.approx([1.25, 1.25])
    assert values["kafka/mock"] == pytest.approx([40.0, 40.0])
    assert values["flat/message"] == pytest.approx([1.2, 1.2])
    assert values["hosts/mock"] == pytest.approx([3.818, 1.909], rel=1e-3)
    not_met = [answer["name"] for answer in found if answer["met"] is False]
    assert not_met == ["scalar", "flat/reset", "memory/renames"]
    assert "| references | 3.0 | 1.07 |" in text
    assert "| 8,192 | 6.00 | 200 |" in text
    assert "| records that carry them | 512 |" in wire
    assert "a number in each | 10.0 |" in wire


def test_each_side_has_a_row_beside_hosts():
    from benchmarks.messaging.report import hosts_markdown

    rows = [line for line in hosts_markdown(report()).splitlines() if line[:1] == "|"]
    assert rows[2:] == [
        "| memory, one process | 20,000 (20,000 to 20,000) | 5,000 | 7.10 |  |  |",
        "| mock, one process | 28,160 (28,160 to 28,160) | 7,040 | 10.00 | 1.41x (1.41 to 1.41) |  |",
        "| mock, two hosts | 80,640 (53,760 to 107,520) | 13,440 | 15.00 | 4.03x (2.69 to 5.38) "
        "| 2.86x (1.91 to 3.82) |",
    ]


def test_parts_are_measured_again(tmp_path):
    from benchmarks.messaging.__main__ import COMMAND, put, tables

    file, whole = tmp_path / "results.json", report()
    hosted = {name: whole.pop(name) for name in ("hosted_envs", "hosted_s")}
    answer = whole["answers"].pop()
    assert "two hosts" not in tables(whole)
    file.write_text(json.dumps(whole))
    again = {"machine": {}, "settings": {}, **hosted, "answers": [answer]}
    merged = put(file, again)
    assert merged == json.loads(json.dumps(report()))
    assert "| mock, two hosts |" in tables(merged)
    with pytest.raises(SystemExit):
        COMMAND.parse(["--again", "nothing", "--output", str(file)])


@pytest.mark.parametrize("part", ["growth", "steps", "delay", "kafka", "sizes", "wire", "hosts"])
def test_a_part_by_itself_has_tables(part):
    from benchmarks.messaging.__main__ import PARTS, tables
    from benchmarks.messaging.report import answers

    whole, shared = report(), ("machine", "settings")
    of_part = {
        "growth": ("grown_bytes", "grown_after"),
        "delay": ("delay_s", "delayed_s"),
        "wire": ("wire",),
        "hosts": ("hosted_envs", "hosted_s"),
    }
    chosen = {name: whole[name] for name in of_part.get(part, (f"{part}_s",))}
    found = [one.as_dict() for one in answers(chosen)]
    assert part in PARTS
    text = tables({**{name: whole[name] for name in shared}, **chosen, "answers": found})
    assert all(answer["what"] in text for answer in found)


def test_what_a_step_sends_is_counted(monkeypatch):
    from benchmarks.messaging import rounds
    from benchmarks.messaging.workload import MESSAGES, N_ENVS, N_HOPS

    wire = rounds.wire()
    assert wire["addresses"] == N_ENVS * MESSAGES
    assert wire["scalar_records"] == wire["four_floats_records"] == N_ENVS * N_HOPS
    assert wire["four_floats_bytes"] > wire["scalar_bytes"] > 8 * N_ENVS * MESSAGES


def test_all_sides_are_measured():
    from benchmarks.messaging.rounds import QUICK, hops, sizes, steps

    assert len(hops(QUICK)) == QUICK.rounds
    assert {len(took) for took in steps(QUICK).values()} == {QUICK.rounds}
    assert list(sizes(QUICK)["reset"]) == list(QUICK.sizes)


@pytest.mark.soak
def test_leaves_run_on_hosts():
    pytest.importorskip("confluent_kafka")
    from benchmarks.messaging.hosts import MEMORY, ONE_PROCESS, TWO_HOSTS, beside_hosts
    from benchmarks.messaging.rounds import QUICK, kinds

    found = beside_hosts(QUICK)
    assert [*found] == [MEMORY, *kinds()]
    assert [*found["mock"]] == [ONE_PROCESS, TWO_HOSTS]
    assert {len(took) for places in found.values() for took in places.values()} == {QUICK.rounds}


def test_what_a_step_with_hosts_sends_is_counted():
    pytest.importorskip("confluent_kafka")
    from benchmarks.messaging.hosts import Hosted
    from benchmarks.messaging.workload import HOSTED_MESSAGES
    from parllel.testing import MockKafkaBroker

    with MockKafkaBroker() as broker:
        side = Hosted(broker.address, 2)
        try:
            before = side.broker.statistics()
            side()
            sent = side.broker.statistics()["published"] - before["published"]
        finally:
            side.close()
    assert sent == 2 * HOSTED_MESSAGES


def test_the_brokers_are_found_where_the_tests_keep_them():
    from benchmarks.messaging.rounds import TESTS

    assert (TESTS / "kafka_brokers.py").is_file()
