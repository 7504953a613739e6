"""The benchmark of distributed policies: its report, and the sides that need no other process."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def report():
    from benchmarks.distributed.rounds import FULL, IDEALS

    seconds = {}
    for n in FULL.sizes:
        seconds[str(n)] = {place: [30e-6, 30e-6, 90e-6] for place in IDEALS}
        seconds[str(n)] |= {ideal: [15e-6, 10e-6, 30e-6] for ideal in IDEALS.values()}
    machine = {"cores": 2, "cpu": "CPU", "python": "CPython 3.11"}
    return {"machine": machine, "settings": asdict(FULL), "seconds": seconds}


def test_each_distance_has_its_ideal_beside_it(report):
    from benchmarks.distributed.report import markdown, short_table

    cells = "30 | 15, 3.00x (2.00 to 3.00)"
    assert f"| in worker processes | {cells} | {cells} | bare pipe |" in markdown(report)
    assert "medians of 7 interleaved rounds of 1 s" in markdown(report)
    assert "| over JSON | 30, 15 | 30, 15 |" in short_table(report)


def test_what_was_not_measured_is_left_out(report):
    from benchmarks.distributed.report import markdown, short_table

    for found in report["seconds"].values():
        del found["in a Ray actor"]
    assert "Ray" not in markdown(report) + short_table(report)


def test_the_chart_has_a_panel_for_each_number_of_environments(report, tmp_path, open_fonts):
    from benchmarks.distributed.report import draw

    draw(report, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["in_process", "in_workers", "by_calls", "AsRoot"])
def test_distances_count_the_steps_of_their_environments(name):
    from benchmarks.distributed import sides

    side = getattr(sides, name)(2)
    try:
        assert side() in (2, 2 * sides.T)
    finally:
        side.close()


@pytest.mark.parametrize("name", ["BareLoop", "BarePipe", "BareLines"])
def test_ideals_count_them_too(name):
    from benchmarks.distributed import ideals

    side = getattr(ideals, name)(2)
    try:
        assert [side(), side()] == [2, 2]
    finally:
        side.close()
