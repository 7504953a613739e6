from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "benchmarks" / "run.py"


def run(*arguments, cwd):
    # pytest-benchmark would take a pytest started here for a worker of the one that runs this test.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XDIST")}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=380)


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.harness import measure

    return measure


@pytest.fixture
def compare(measure):
    """Compare two sides that write their names into `calls`."""

    def compare(calls, *, reads="faster", units=(1, 1), check=lambda: None):
        def side(name, n):
            def work():
                calls.append((name, gc.isenabled()))
                return n

            return work

        @contextmanager
        def make():
            yield measure.Sides(side("ours", units[0]), side("theirs", units[1]), check, "a note")
            calls.append(("cleaned up", gc.isenabled()))

        return measure.Comparison("question/variant", "what", make, reads=reads)

    return compare


SOME = ("indexing", "registered_send", "storage", "gae")


@pytest.mark.parametrize(
    "only", [pytest.param(SOME, id="some"), pytest.param((), id="all", marks=pytest.mark.soak)]
)
def test_quick_run_writes_every_figure_and_prints_a_table(tmp_path, only):
    output = tmp_path / "new" / "figures.json"
    names = ("--only", *only) if only else ()
    ran = run(RUN, "--quick", *names, "--output", output, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(output.read_text())
    assert report["settings"] == {"quick": True, "pairs": 3, "batch_s": 0.005}
    for answer in report["comparisons"]:
        seconds_per_unit = [
            [pair[side]["seconds"] / pair[side]["units"] for side in ("ours", "theirs")]
            for pair in report_pairs(answer, report["settings"]["pairs"])
        ]
        faster = [theirs / ours for ours, theirs in seconds_per_unit]
        assert answer["reads"] in ("times faster", "times slower")
        expected = faster if answer["reads"] == "times faster" else [1 / x for x in faster]
        assert answer["ratios"] == pytest.approx(expected)
        assert answer["ratio"] == {  # of three pairs the interval is all there is
            "median": pytest.approx(statistics.median(expected)),
            "low": pytest.approx(min(expected)),
            "high": pytest.approx(max(expected)),
        }
        assert (answer["met"] is None) == (answer["target"] is None)
        assert answer["what"] in ran.stdout
    questions = {answer["name"].partition("/")[0] for answer in report["comparisons"]}
    if only:
        assert questions == set(SOME)
    else:
        assert questions >= {*SOME, "process_cage"}
        left_out = {"name": "process_cage/CartPole-v1-n=4", "why": "not in a quick run"}
        assert left_out in report["left_out"]
    counts = {count["name"]: count for count in report["counts"]}
    assert counts["registered_send/bytes"]["target"] == 100
    for count in counts.values():
        assert count["value"] <= count["target"]
        assert count["met"] is True


def report_pairs(answer, expected):
    assert len(answer["pairs"]) == expected
    for pair in answer["pairs"]:
        assert set(pair) == {"ours", "theirs"}
        for timing in pair.values():
            assert timing["seconds"] > 0
            assert timing["units"] >= 1
    return answer["pairs"]


@pytest.mark.parametrize("named", [False, True])
def test_what_has_a_file_of_its_own_is_measured_only_if_it_is_named(named, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    program = importlib.import_module("benchmarks.run")
    asked = []

    def measure(comparison, pairs, batch_s):
        asked.append(comparison.name.partition("/")[0])
        return comparison

    monkeypatch.setattr(program, "measure", measure)
    monkeypatch.setattr(program, "answer_count", lambda count: count.name)
    for name in ("count_cells", "comparison_cells"):
        monkeypatch.setattr(program, name, lambda answer: [])
    monkeypatch.setattr(program, "as_dict", lambda answer: answer)
    files = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    own = {"jax", "learners", "local_rollouts", "off_policy", "replays"}
    assert own < files
    options = argparse.Namespace(only=["jax", "replays"] if named else None, quick=False)
    report = program.answer_all(program.Effort(), options)
    assert ("replays/bytes" in report["counts"]) == named
    if named:
        assert set(asked) | {one["name"].partition("/")[0] for one in report["left_out"]} == {
            "jax",
            "replays",
        }
    else:
        assert set(asked) & {*own, "ray-fragments"} == set()
        assert {"row", "update", "indexing"} <= set(asked)


def test_only_answers_one_question(tmp_path):
    output = tmp_path / "gae.json"
    ran = run(RUN, "--quick", "--only", "gae", "--output", output, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(output.read_text())
    assert [answer["name"] for answer in report["comparisons"]] == ["gae"]
    assert report["counts"] == report["left_out"] == []
    assert list(tmp_path.iterdir()) == [output]


def test_unknown_question_is_refused(tmp_path):
    ran = run(RUN, "--only", "ga", "--output", tmp_path / "none.json", cwd=tmp_path)
    assert ran.returncode == 2
    assert "--only: expected some of " in ran.stderr
    assert ", registered_send/bytes" in ran.stderr
    assert ", indexing/write-scalar" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_benchmarks_run_under_pytest():
    """Collect all, and run those of two files."""
    found = run("-m", "pytest", "benchmarks/", "--collect-only", "-q", cwd=ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
    for file in (ROOT / "benchmarks").glob("bench_*.py"):
        assert f"benchmarks/{file.name}::test_" in found.stdout
    some = [f"benchmarks/bench_{name}.py" for name in ("gae", "registered_send")]
    ran = run("-m", "pytest", *some, "--benchmark-disable", "-v", cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SKIPPED" not in ran.stdout


def test_what_is_missing_is_named_where_a_benchmark_is_skipped(measure, compare):
    comparison = replace(compare([]), needs=("json", "no_such_module"))
    said = r"needs no_such_module: pip install '\.\[benchmarks\]' in a checkout of parllel"
    with pytest.raises(pytest.skip.Exception, match=said):
        measure.run_side(None, comparison, "ours")


def test_machine_is_described_without_saying_whose_it_is(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.harness.machine import describe_machine

    machine = describe_machine()
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert machine["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine["python"].endswith(platform.python_version())
    assert machine["libraries"]["numpy"].count(".") >= 2
    text = json.dumps(machine)
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert f'"{platform.node()}"' not in text


def test_sides_take_turns_without_the_garbage_collector(measure, compare):
    calls = []
    answer = measure.measure(compare(calls), pairs=7, batch_s=1e-4)
    assert len(answer.pairs) == 7
    assert answer.note == "a note"
    assert calls[-1] == ("cleaned up", True)
    assert not any(collecting for _, collecting in calls[:-1])
    names = [name for name, _ in calls[:-1]]
    turns = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    # calibration of either side first, then the pairs
    assert turns == ["ours", "theirs"] * 8
    counts = [pair.ours.units for pair in answer.pairs]
    assert set(counts) == {counts[0]}


@pytest.mark.parametrize(("reads", "expected"), [("faster", [6.0, 2.0]), ("slower", [1 / 6, 0.5])])
def test_ratios_are_per_unit_and_read_as_asked(measure, compare, reads, expected):
    timing = measure.Timing
    pairs = [
        measure.Pair(timing(1.0, 4), timing(3.0, 2)),
        measure.Pair(timing(2.0, 2), timing(2.0, 1)),
    ]
    answer = measure.Answer(compare([], reads=reads), pairs, "")
    assert answer.ratios == pytest.approx(expected)
    assert answer.estimate.median == pytest.approx(statistics.mean(expected))


def test_goals_are_reached_by_the_far_bound(measure, compare):
    faster, slower = compare([], reads="faster"), compare([], reads="slower")
    found = measure.Estimate(2.0, 1.2, 3.0)
    assert (faster.reaches(found, 1.2), faster.reaches(found, 1.5)) == (True, False)
    assert (slower.reaches(found, 3.0), slower.reaches(found, 2.5)) == (True, False)
    assert faster.reaches(found, None) is None


def test_sides_that_do_not_agree_are_not_timed(measure, compare):
    calls = []

    def differ():
        raise AssertionError("the sides differ")

    with pytest.raises(AssertionError, match="the sides differ"):
        measure.measure(compare(calls, check=differ), pairs=1, batch_s=1e-4)
    assert calls == []
    assert gc.isenabled()
