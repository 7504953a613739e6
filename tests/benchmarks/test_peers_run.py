from __future__ import annotations

import importlib
import json
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "benchmarks" / "peers" / "run.py"
SIDES = ["ideal", "parllel", "gymnasium SyncVectorEnv"]


def run(*arguments, cwd):
    command = [sys.executable, str(RUN), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170)


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.peers import driver, figures, goals, scenes

    return driver, figures, goals, scenes


@pytest.fixture
def result(modules):
    """Return a scene with figures made up: three rounds of each side."""
    driver, _, _, scenes = modules

    def side(name, kind, rates, agrees=None):
        return driver.Measured(name, kind, {}, {}, {}, [], rates=rates, agrees=agrees)

    scene = next(scene for scene in scenes.SCENES if scene.name == "cartpole")
    return driver.SceneResult(
        scene,
        [
            side("ideal", "ideal", [100.0, 110.0, 90.0]),
            side("ideal, pinned", "ideal", [120.0, 100.0, 120.0]),
            side("parllel", "ours", [90.0, 90.0, 96.0], agrees=True),
            side("slow", "peer", [30.0, 30.0, 30.0]),
            side("fast", "peer", [40.0, 45.0, 60.0]),
            side("EnvPool (C++)", "native", [900.0, 900.0, 900.0]),
            side("parllel, compiled envs", "compiled", [1800.0, 1800.0, 2700.0]),
        ],
    )


def test_quick_run_measures_sides_in_turn_and_writes_figures(tmp_path):
    output = tmp_path / "new" / "peers.json"
    options = ["--quick", "--rounds", 2, "--only", "cartpole-4", "--sides", *SIDES]
    ran = run(*options, "--output", output, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(output.read_text())
    (scene,) = report["scenes"]
    assert scene["left_out"] == []
    sides = {side["name"]: side for side in scene["sides"]}
    assert set(sides) == {"ideal", "ideal, pinned", "parllel", "gymnasium SyncVectorEnv"}
    for side in sides.values():
        assert len(side["rates"]) == 2
        assert min(side["rates"]) > 0
        assert side["versions"]["gymnasium"]
    assert sides["parllel"]["agrees"] is sides["ideal"]["agrees"] is True
    answers = {answer["name"]: answer for answer in report["answers"]}
    share = answers["share/cartpole-4"]
    ideal = max(
        (sides[name] for name in ("ideal", "ideal, pinned")),
        key=lambda side: statistics.median(side["rates"]),
    )
    pairs = zip(sides["parllel"]["rates"], ideal["rates"], strict=True)
    expected = [ours / theirs for ours, theirs in pairs]
    assert share["values"] == pytest.approx(expected)
    assert share["measured"]["median"] == pytest.approx(statistics.median(expected))
    assert (share["at_least"], share["aim"]) == (0.65, 0.80)
    assert share["what"] in ran.stdout
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"new"}


def test_scenes_can_be_measured_again(modules, tmp_path):
    run_module = importlib.import_module("benchmarks.peers.run")
    from benchmarks.harness import results

    here = {"cores": 2, "load_average_1min": 0.5}
    old = {
        "machine": here,
        "settings": {"rounds": 15},
        "scenes": [{"name": "a", "n": 1}, {"name": "b", "n": 1}],
        "answers": [{"name": "share/a", "n": 1}, {"name": "share/b", "n": 1}],
        "not_measured": {"b": "why", "c": "why", "main/flat": "why"},
    }
    path = tmp_path / "peers.json"
    path.write_text(json.dumps(old))
    new = {
        "machine": here,
        "settings": {"rounds": 3},
        "scenes": [{"name": "b", "n": 2}],
        "answers": [{"name": "share/b", "n": 2}, {"name": "main/flat", "n": 2}],
        "not_measured": {},
    }
    both = run_module.put(path, new)
    assert both["settings"] == {"rounds": 15}
    assert both["scenes"] == [{"name": "a", "n": 1}, {"name": "b", "n": 2}]
    assert both["answers"] == [
        {"name": "share/a", "n": 1},
        {"name": "share/b", "n": 2},
        {"name": "main/flat", "n": 2},
    ]
    assert both["not_measured"] == {"c": "why"}
    results.check_machine(path, {**here, "load_average_1min": 3.0})
    with pytest.raises(SystemExit, match="is of another machine; cores differ"):
        results.check_machine(path, {**here, "cores": 4})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "cartpol"], "--only: expected some of cartpole, .*got cartpol"),
        (["--sides", "ray"], "--sides: expected some of CleanRL-style loop, .*got ray"),
        (["--again", "cartpole"], "--again: expected an output that exists"),
        (["--rounds", "0"], "--rounds: expected 1 or more, got 0"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    ran = run(*options, "--output", tmp_path / "none.json", cwd=tmp_path)
    assert ran.returncode == 2
    assert list(tmp_path.iterdir()) == []
    assert re.search(message, " ".join(ran.stderr.split()))


def answers_of(goals, result):
    return {goal.name: goal.answer(result) for goal in goals.goals(2) if goal.scene == "cartpole"}


def test_ratios_are_those_of_each_round_against_the_best(modules, result):
    _, _, goals, _ = modules
    answers = answers_of(goals, result)
    # The pinned ideal has the greater median; the best peer is neither slow nor in C++.
    share, best = answers["share/cartpole"], answers["best-peer/cartpole"]
    assert share.values == pytest.approx([90 / 120, 90 / 100, 96 / 120])
    assert best.values == pytest.approx([90 / 40, 90 / 45, 96 / 60])
    # The least of the three counts: 0.75 and 1.6 do not reach 0.8 and 1.9.
    assert (share.reaches(0.8), share.reaches(0.75), share.reaches(None)) == (False, True, None)
    assert best.reaches(1.9) is False
    missing = answers["async/cartpole"]
    assert (missing.estimate, missing.reaches(14)) == (None, None)
    assert "was left out" in missing.note


def test_a_share_above_one_or_other_environments_void_the_figure(modules, result):
    _, _, goals, _ = modules
    from benchmarks.harness.answers import answer_cells

    ours = result.side("parllel")
    ours.rates[:] = [121.0, 101.0, 121.0]
    share = answers_of(goals, result)["share/cartpole"]
    assert share.void.startswith("a share above 1")
    assert share.reaches(0.8) is None
    assert "void: a share above 1" in answer_cells(share.as_dict())[1]
    ours.rates[:] = [121.0, 99.0, 121.0]
    assert answers_of(goals, result)["share/cartpole"].void == ""
    ours.agrees = False
    assert "same environments" in answers_of(goals, result)["best-peer/cartpole"].void


def test_a_turn_is_not_planned_by_what_was_ready_before(modules):
    from benchmarks.peers.client import Timing

    driver, *_ = modules

    class WorksAhead:
        ready = 3

        def run(self, batches):
            made = max(0, batches - self.ready)
            self.ready = max(0, self.ready - batches)
            return Timing(1.0, 0.5 * made + 1e-6 * batches, batches)

    for warm in (0, 1, 5):
        assert 1 <= driver.batches_for(WorksAhead(), turn_s=2.0, warm_batches=warm) <= 16


def test_small_values_are_good_where_the_answer_says_so(modules):
    _, _, goals, _ = modules
    answer = goals.Answer("main/flat", "flat", [1.0, 1.1, 1.2], 1.2, 1.0, small=True)
    assert (answer.reaches(1.2), answer.reaches(1.0)) == (True, False)
    assert replace(answer, values=[1.0, 1.1, 1.21]).reaches(1.2) is False


def test_bound_is_that_of_the_better_schedule(modules):
    _, _, goals, _ = modules
    B, e, whole = 16, 10e-6, 60e-6
    # In turn: 80 us of stepping on each of two cores, then 60 us of thinking: 16 steps in 140 us.
    assert goals.schedule_bound(B, 2, e, whole, 100e-6) == pytest.approx(16 / 140e-6)
    # In two groups: 160 us of stepping and two thoughts of 54 us, shared by two cores: 134 us.
    assert goals.schedule_bound(B, 2, e, whole, 54e-6) == pytest.approx(16 / 134e-6)


def test_tables_and_marks(modules, result):
    _, figures, goals, _ = modules
    report = {
        "machine": {"cores": 2, "cpu": "CPU", "python": "CPython 3"},
        "settings": {"rounds": 3},
        "answers": [answer.as_dict() for answer in answers_of(goals, result).values()],
        "scenes": [
            {
                "name": "cartpole",
                "sides": [
                    {"name": s.name, "kind": s.kind, "rates": [1000 * r for r in s.rates]}
                    for s in result.sides
                ],
                "left_out": [{"side": "TorchRL", "why": "not there"}],
            }
        ],
        "not_measured": {"Sample Factory": "its pins"},
    }
    text = figures.markdown(report)
    share = "| CartPole-v1, share of the ideal | 0.8 (0.75 to 0.9) | 0.8 (0.92) | no |"
    assert share in text.splitlines()
    assert "| ideal, pinned | 120.0 |" in text.splitlines()
    assert "| fast | 45.0 |" in text.splitlines()
    assert "Sample Factory (its pins); TorchRL on cartpole (not there)" in text
    native = next(line for line in text.splitlines() if "900,000" in line)
    ours, compiled = (
        "90,000 | 10.0x slower (9.38 to 10.0)",
        "1,800,000 | 2.00x faster (2.00 to 3.00)",
    )
    assert native == f"| cartpole | 900,000 | {ours} | {compiled} |"
    assert "| EnvPool (C++) | **900.0** |" in text.splitlines()


def test_chart_and_table_have_one_denominator(modules, result):
    _, _, goals, _ = modules
    from benchmarks.peers import rates

    scene = {"sides": [{"name": s.name, "kind": s.kind, "rates": s.rates} for s in result.sides]}
    in_table = answers_of(goals, result)["share/cartpole"].estimate.median
    assert rates.shares(scene)["parllel"] == pytest.approx(in_table)
    assert rates.shares(scene)["ideal, pinned"] == 1.0
