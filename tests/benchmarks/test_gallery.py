"""The gallery: trainings are written once, go on after a kill, and fail one by one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Writes what a training would, after what its folder says of the seed: nothing, "fail" or "wait".
FAKE = """
import json, sys, time
from pathlib import Path
from benchmarks.harness.child import end_with_parent
end_with_parent()
folder, seed, height = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
(folder / f"began-{seed}-{height:g}").open("a").write("x")
what = folder / f"seed{seed}"
if what.exists() and what.read_text() == "fail":
    raise RuntimeError("no such luck")
while what.exists():
    time.sleep(0.05)
curve = [[10, height], [20, height + seed]]
for message in (
    {"event": "ready", "libraries": {"torch": "1"}},
    {"event": "result", "steps": 20, "cpu_s": 2.0, "curve": curve, "returns": [height, seed]},
    {"event": "end"},
):
    print(json.dumps(message), flush=True)
"""
# Trains with the fake, in a process that can be killed.
DRIVER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/patterns", sys.argv[1] + "/tests/benchmarks"]
import test_gallery
test_gallery.train(Path(sys.argv[2]), seeds=3)
"""


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def entry():
    from benchmarks.gallery.entries import ENTRIES

    return next(one for one in ENTRIES if one.name == "cartpole-ppo")


def train(folder, seeds, jobs=1):
    """Train with the fake, and return the report."""
    from benchmarks.gallery.trainings import Trainer, begin, missing

    path = folder / "gallery.json"
    report = begin(path, [entry()])

    def command(task):
        height = {"ours": 10, "sb3": 20}[task.side.name]
        return [sys.executable, "-c", FAKE, str(folder), str(task.seed), str(height)]

    Trainer(path, report, 60.0, command).run(list(missing(report, [entry()], seeds)), jobs)
    return report


def seeds_of(report, kind="trainings"):
    sides = report["entries"]["cartpole-ppo"]["sides"]
    return {name: [one["seed"] for one in side[kind]] for name, side in sides.items()}


def starts(folder):
    """Return how often each fake was started."""
    return {path.name: len(path.read_text()) for path in sorted(folder.glob("began-*"))}


@pytest.mark.parametrize("jobs", [1, 3])
def test_trainings_are_written_and_not_repeated(tmp_path, jobs):
    report = train(tmp_path, 2, jobs)
    written = json.loads((tmp_path / "gallery.json").read_text())
    assert written == report
    assert seeds_of(written) == {"ours": [0, 1], "sb3": [0, 1]}
    one = written["entries"]["cartpole-ppo"]["sides"]["ours"]["trainings"][1]
    assert one == {
        "seed": 1,
        "mean": 5.5,
        "std": 4.5,
        "steps": 20,
        "cpu_s": 2.0,
        "steps_per_cpu_second": 10.0,
        "curve": [[10, 10.0], [20, 11.0]],
    }
    assert written["entries"]["cartpole-ppo"]["comparison"]["difference"] == -5.0
    train(tmp_path, 2)
    assert set(starts(tmp_path).values()) == {1}
    assert seeds_of(train(tmp_path, 3))["ours"] == [0, 1, 2]


def test_a_killed_benchmark_loses_the_training_at_work_only(tmp_path):
    (tmp_path / "seed1").write_text("wait")
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(ROOT), str(tmp_path)])
    deadline = time.monotonic() + 60
    while "began-1-10" not in starts(tmp_path):
        assert time.monotonic() < deadline
        assert driver.poll() is None
        time.sleep(0.05)
    (at_work,) = children_of(driver.pid)
    driver.kill()
    driver.wait()
    while running(at_work):  # it ends with the benchmark, instead of training on
        assert time.monotonic() < deadline
        time.sleep(0.05)
    written = json.loads((tmp_path / "gallery.json").read_text())
    assert seeds_of(written) == {"ours": [0], "sb3": [0]}
    (tmp_path / "seed1").unlink()
    assert seeds_of(train(tmp_path, 3)) == {"ours": [0, 1, 2], "sb3": [0, 1, 2]}
    begun = starts(tmp_path)
    assert begun.pop("began-1-10") == 2
    assert set(begun.values()) == {1}


def test_an_interrupt_ends_the_trainings_at_work(tmp_path):
    (tmp_path / "seed1").write_text("wait")
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(ROOT), str(tmp_path)])
    deadline = time.monotonic() + 60
    while "began-1-10" not in starts(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (at_work,) = children_of(driver.pid)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=60) != 0
    assert not running(at_work)
    written = json.loads((tmp_path / "gallery.json").read_text())
    assert seeds_of(written, "failed") == {"ours": [], "sb3": []}


def children_of(pid):
    from benchmarks.harness.machine import descendants

    return set(descendants(pid)) - {pid}


def running(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_failure_costs_the_others_nothing_and_is_tried_again(tmp_path):
    from benchmarks.gallery import report as gallery

    (tmp_path / "seed0").write_text("fail")
    report = train(tmp_path, 3)
    assert seeds_of(report) == {"ours": [1, 2], "sb3": [1, 2]}
    assert seeds_of(report, "failed") == {"ours": [0], "sb3": [0]}
    (failed,) = report["entries"]["cartpole-ppo"]["sides"]["sb3"]["failed"]
    assert "RuntimeError: no such luck" in failed["error"]
    # Means of 5.5 and 6, and of 10.5 and 11.
    row = gallery.markdown(report).splitlines()[2]
    assert "| 2 | 5.75 (5.50 to 6.00); 1 failed | 10.8 (10.5 to 11.0); 1 failed |" in row
    assert "| -5.00, too few seeds for an interval | too few seeds |" in row
    (tmp_path / "seed0").unlink()
    report = train(tmp_path, 3)
    assert seeds_of(report, "failed") == {"ours": [], "sb3": []}
    assert seeds_of(report) == {"ours": [0, 1, 2], "sb3": [0, 1, 2]}


def test_other_settings_are_refused(tmp_path):
    from benchmarks.gallery.trainings import begin

    path = tmp_path / "gallery.json"
    path.write_text(json.dumps(begin(path, [entry()])))
    other = replace(entry(), config=replace(entry().config, discount=0.5))
    with pytest.raises(
        ValueError, match=r"cartpole-ppo was trained with other settings \(discount"
    ):
        begin(path, [other])
    # A seed is not a setting.
    begin(path, [replace(entry(), config=replace(entry().config, seed=7))])


def test_unknown_entries_are_refused(capsys):
    from benchmarks.gallery.__main__ import main

    with pytest.raises(SystemExit, match="2"):
        main(["cartpole-pp"])
    assert "unknown entry 'cartpole-pp'; did you mean 'cartpole-ppo'?" in capsys.readouterr().err


def trainings(*means):
    return [
        {"seed": seed, "mean": mean, "curve": [[20, mean], [40, mean]]}
        for seed, mean in enumerate(means)
    ]


@pytest.mark.parametrize(("n", "tells"), [(2, False), (3, False), (4, True), (5, True)])
def test_a_comparison_claims_no_more_than_its_seeds_allow(n, tells):
    from benchmarks.gallery import report as gallery
    from benchmarks.gallery.comparison import comparison

    apart = [trainings(*range(start, start + n)) for start in (1000, 0)]
    found = comparison(*apart, 10)
    assert found["difference"] == 1000
    assert (found["interval"] is not None) == tells
    assert found["p_value"] == found["least_p_value"]  # nothing can be further apart
    assert (found["p_value"] <= 0.05) == tells
    words = gallery._curve_words(found)
    assert words.endswith(", higher") if tells else words == "too few seeds"
    if tells:
        low, high = found["interval"]
        assert 1000 - n < low < 1000 < high < 1000 + n
    assert comparison(apart[0][:1], apart[1], 10) is None


def test_missing_points_of_a_curve_repeat_those_before():
    from benchmarks.gallery.comparison import comparison, filled

    assert filled([[20, 1.0], [50, 2.0]], 10) == [(20, 1), (30, 1), (40, 1), (50, 2)]
    some = trainings(1.0, 2.0)
    assert comparison([{**some[0], "curve": []}, some[1]], some, 10)["learning_curves"] is None
    # Compared from the step on at which all have a point.
    late = [{**one, "curve": [[40, one["mean"]]]} for one in some]
    assert comparison(late, some, 10)["learning_curves"]["p_value"] == 1.0


@pytest.mark.parametrize(
    ("value", "text"),
    [(500.0, "500"), (-1234.5, "-1,234"), (12.34, "12.3"), (0.987, "0.99"), (-0.001, "0.00")],
)
def test_numbers_have_three_digits(value, text):
    from benchmarks.gallery.report import number

    assert number(value) == text


def tiny(name, **changes):
    from parllel_patterns import tuned

    sizes = {"n_steps": 512, "log_interval_steps": 256, "T": 32, "B": 4}
    return replace(tuned(name), **sizes, **changes)


OFF_POLICY = {"learning_starts": 64, "batch_size": 8, "hidden_sizes": (8, 8)}


@pytest.mark.parametrize(
    "name",
    [
        "cartpole-dqn",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("doorkey-ppo", "pendulum-sac")),
    ],
)
def test_both_sides_train_and_are_evaluated_in_the_same_episodes(tmp_path, name):
    from benchmarks.gallery.entries import SIDES, Entry
    from benchmarks.gallery.trainings import Trainer, begin, command_of, missing
    from benchmarks.peers import venvs

    pytest.importorskip("torch")
    if venvs.python_of("peers") is None:
        pytest.skip("no virtual environment for Stable-Baselines3")
    changes = {} if name.endswith("ppo") else dict(OFF_POLICY)
    if name.endswith("ppo"):
        changes["ppo"] = replace(tiny(name).ppo, minibatches=4)
    if name.endswith("sac"):
        changes["sac"] = replace(tiny(name).sac, random_steps=64)
    one = Entry(name, tiny(name, **changes), n_seeds=1, n_eval_episodes=3)
    path = tmp_path / "gallery.json"
    report = begin(path, [one])
    Trainer(path, report, 150.0, command_of).run(list(missing(report, [one], None)), 2)
    found = report["entries"][name]
    assert [found["sides"][side.name]["failed"] for side in SIDES] == [[], []]
    assert found["comparison"] is None  # of one seed each
    for side in found["sides"].values():
        (training,) = side["trainings"]
        assert training["steps"] == 512
        assert 0 < training["cpu_s"] < 150
        assert {steps for steps, _ in training["curve"]} <= {256, 512}
        assert "gymnasium" in side["libraries"]
        if name == "cartpole-dqn":
            assert 1 <= training["mean"] <= 500
            assert training["curve"]


def test_committed_trainings_have_the_tuned_settings():
    from benchmarks.gallery.entries import ENTRIES
    from benchmarks.gallery.trainings import begin
    from benchmarks.harness.results import results_of

    # Raises for an entry with other settings.
    report = begin(results_of("gallery"), ENTRIES)
    assert set(report["entries"]) == {one.name for one in ENTRIES}
