"""The benchmark of operators: its report, and the sides that it is measured against."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def report():
    from benchmarks.operators.report import answers, markdown
    from benchmarks.operators.rounds import BARE, ECHO, FULL, KINDER, NESTED, OURS, PNG, TIMER

    rates = {
        OURS: [6000.0, 6600.0],
        TIMER: [2.0, 2.2],
        KINDER: [10.0, 11.0],
        BARE: [8000.0, 8800.0],
        ECHO: [12000.0, 13200.0],
    }
    pictures = {PNG: [200.0, 220.0], NESTED: [20.0, 20.0]}
    starts = {"worker": [(0.3, 0.2), (0.3, 0.2)], "gymnasium": [(0.2, 0.1), (0.2, 0.1)]}
    found = [one.as_dict() for one in answers(rates, pictures, [5.0, 7.0], starts)]
    whole = {
        "machine": {"cores": 2, "cpu": "CPU", "python": "CPython 3.11"},
        "settings": asdict(FULL),
        "rates": rates,
        "pictures": pictures,
        "experiment": {"steps": 1000.0, "seconds": 0.5, "cpu_s": 0.02},
        "answers": found,
    }
    return found, markdown(whole)


def test_each_goal_has_a_line():
    found, text = report()
    values = {answer["name"]: answer["values"] for answer in found}
    assert values["timer"] == pytest.approx([3000.0, 3000.0])
    assert values["kinder"] == pytest.approx([600.0, 600.0])
    assert values["echo"] == pytest.approx([0.5, 0.5])
    assert values["frame"] == pytest.approx([10.0, 11.0])
    assert values["start_cpu"] == pytest.approx([2.0, 2.0])
    met = {answer["name"]: answer["met"] for answer in found}
    assert [name for name, one in met.items() if one is False] == ["frame", "stop", "start_cpu"]
    assert "at most 6 s" in text
    assert "| bare echo of JSON lines | 12,600 |" in text
    assert "makes 2,000 steps per second in all" in text
    assert "20 µs of CPU time" in text


def test_nested_frames_arrive_as_pictures():
    from benchmarks.operators.sides import FRAMES, Mosaic

    side = Mosaic(FRAMES)
    try:
        assert [side(), side()] == [1, 1]
    finally:
        side.close()


def test_a_worker_that_ends_is_reported():
    from benchmarks.operators.mosaic_handle import MosaicHandle

    handle = MosaicHandle(["-c", "print('{}')"], 0.0)
    try:
        assert handle.poll() == {}
        with pytest.raises(RuntimeError, match=r"in the style of MOSAIC has ended$"):
            handle.poll()
    finally:
        handle.close()
