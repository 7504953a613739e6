"""What the pages say of figures: in words, from results, between marks."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(
    ("speed", "words"),
    [
        ((2.0, 1.5, 12.34), "2.00x faster (1.50 to 12.3)"),
        ((0.4, 0.25, 0.5), "2.50x slower (2.00 to 4.00)"),
        ((1.2, 0.9, 1.5), "no clear difference: 1.20x (0.90 to 1.50)"),
        ((1.0, 1.0, 1.0), "no clear difference: 1.00x (1.00 to 1.00)"),
    ],
)
def test_nothing_is_faster_by_less_than_one(speed, words):
    from benchmarks.harness.answers import comparison_words
    from benchmarks.harness.interval import Estimate

    assert comparison_words(Estimate(*speed)) == words


def test_a_line_of_our_own_parts():
    from benchmarks.figures import comparison_cells

    comparison = {
        "what": "draw",
        "reads": "times slower",
        "ratios": [0.25, 0.5, 0.5],
        "target": 1.0,
        "aim": 0.5,
        "met": True,
        "aim_met": True,
    }
    cells = ("draw", "2.00x faster (2.00 to 4.00)", "as fast (0.5x)", "yes, and the aim")
    assert comparison_cells(comparison) == cells
    without = comparison_cells({**comparison, "target": None})
    assert without == (*cells[:2], "-", "-")


def side(name, kind, *rates):
    return {"name": name, "kind": kind, "rates": list(rates)}


def test_the_table_of_the_readme():
    from benchmarks import summary

    peers = {
        "machine": {"cores": 2, "cpu": "CPU"},
        "answers": [{"name": "best-peer/cartpole", "at_least": 1.9}],
        "scenes": [
            {
                "name": "cartpole",
                "sides": [
                    side("parllel", "ours", 1800.0, 2000.0, 2200.0),
                    side("slow", "peer", 500.0, 500.0, 500.0),
                    side("fast", "peer", 1000.0, 1000.0, 1000.0),
                    side("EnvPool (C++)", "native", 9000.0, 9000.0, 9000.0),
                    side("compiled", "compiled", 90000.0, 90000.0, 90000.0),
                ],
            },
            {
                "name": "pong",
                "sides": [side("parllel", "ours", 700.0), side("fast", "peer", 600.0)],
            },
        ],
    }
    rates = {"in_turn": [5000.0, 6000.0], "overlapped": [9000.0, 9000.0], "sb3": [2000.0, 2000.0]}
    sides = {
        name: {"title": name, "trainings": [{"steps_per_second": rate} for rate in rates_]}
        for name, rates_ in rates.items()
    }
    compiled = {"title": "compiled", "trainings": [{"steps_per_second": 12000.0}] * 2}
    targets = {"cartpole": 2.5, "halfcheetah": 3.0}
    end_to_end = {
        "scenes": [
            {
                "name": name,
                "settings": {"env": f"{name}-v9"},
                "sides": sides if name == "halfcheetah" else {**sides, "compiled": compiled},
                "comparisons": [
                    {"ours": "overlapped", "peer": "sb3", "times_faster": {"target": 99.0}},
                    {"ours": "in_turn", "peer": "sb3", "times_faster": {"target": target}},
                ],
            }
            for name, target in targets.items()
        ]
    }
    rows = [line for line in summary.markdown(peers, end_to_end).splitlines() if line[:1] == "|"]
    assert rows[2:] == [
        "| CartPole-v1 | 2,000 | 1,000 fast | 2.00x faster (1.80 to 2.20) | 1.9x: not reached "
        "| **9,000, 4.50x ours** | 90,000, 10.0x EnvPool's |",
        "| ALE/Pong-v5, 210x160x3 | 700 | 600 fast | 1.17x faster (1.17 to 1.17) | - |  |  |",
        "| PPO on cartpole-v9 | 5,500 | 2,000 sb3 | 2.75x faster (2.50 to 3.00) | 2.5x: reached |  "
        "| 12,000, 6.00x sb3's |",
        "| PPO on halfcheetah-v9 | 5,500 | 2,000 sb3 | 2.75x faster (2.50 to 3.00) | 3x: not reached "
        "|  |  |",
    ]
    assert len(summary.SCENES) + len(summary.TRAININGS) <= 10


def test_sections_replace_what_is_between_their_marks(tmp_path):
    from benchmarks.pages import Section

    section = Section("s", tmp_path / "page.md", ("a", "b"), lambda a, b: f"{a['x'] + b['x']}\n")
    text = f"before\n{section.begin}old\n{section.end}after\n"
    written = section.within(text, {"x": 1}, {"x": 2})
    assert written == f"before\n{section.begin}\n3\n\n{section.end}after\n"
    with pytest.raises(ValueError, match=r"page\.md: expected the marks"):
        section.within("nothing", {"x": 1}, {"x": 2})
