"""The benchmark of messages: its report, and the sides that it measures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def report():
    from benchmarks.messaging.report import answers, markdown, wire_markdown
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
    }
    found = [one.as_dict() for one in answers(measured)]
    whole = {
        "machine": {"cores": 2, "cpu": "CPU", "python": "CPython 3.11"},
        "settings": asdict(FULL),
        **measured,
        "answers": found,
    }
    return found, markdown(whole), wire_markdown(whole)


def test_each_goal_has_a_line():
    found, text, wire = report()
    values = {answer["name"]: answer["values"] for answer in found}
    assert values["references"] == pytest.approx([3.0, 3.0])
    assert values["four"] == pytest.approx([12.0, 12.0])
    assert values["delay"] == pytest.approx([1.25, 1.25])
    assert values["kafka/mock"] == pytest.approx([40.0, 40.0])
    assert values["flat/message"] == pytest.approx([1.2, 1.2])
    not_met = [answer["name"] for answer in found if answer["met"] is False]
    assert not_met == ["scalar", "flat/reset", "memory/renames"]
    assert "| references | 3.0 | 1.07 |" in text
    assert "| 8,192 | 6.00 | 200 |" in text
    assert "| records that carry them | 512 |" in wire
    assert "a number in each | 10.0 |" in wire


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


def test_the_brokers_are_found_where_the_tests_keep_them():
    from benchmarks.messaging.rounds import TESTS

    assert (TESTS / "kafka_brokers.py").is_file()
