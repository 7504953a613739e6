"""Means, intervals and differences, from telemetry with known numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from parllel.operators.intervals import Mean, mean_with_interval, proportion_with_interval
from parllel.operators.price import Price
from parllel.operators.results import GroupResult, Latency, Source, results_of
from parllel.operators.results_table import print_results
from parllel.operators.telemetry import Telemetry


@pytest.mark.parametrize("n", [2, 3, 5, 20, 50])
def test_intervals_agree_with_another_bootstrap(n):
    from scipy import stats  # which takes as long as all else that is imported here

    values = np.random.default_rng(n).exponential(size=n)
    found = mean_with_interval(list(values))
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", random_state=1
    )
    # Of 10,000 resamples the quantiles stray by about 2 % of the width.
    within = 0.05 * (found.high - found.low)
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=within)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=within)
    assert found == mean_with_interval(list(values))


def test_intervals_of_next_to_nothing():
    assert mean_with_interval([]) == Mean(None, None, None, 0)
    assert mean_with_interval([3.0]) == Mean(3.0, None, None, 1)
    assert mean_with_interval([0.1] * 7) == Mean(0.1, 0.1, 0.1, 7)
    assert mean_with_interval([0.0, 1.0]) == Mean(0.5, 0.0, 1.0, 2)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (3, 10), (1, 1), (40, 50)])
def test_intervals_of_proportions_are_wilsons(k, n):
    from scipy import stats

    found = proportion_with_interval([True] * k + [False] * (n - k))
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert (found.mean, found.n) == (k / n, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert proportion_with_interval([]) == Mean(None, None, None, 0)


def test_many_values_are_resampled_in_parts():
    values = np.random.default_rng(0).normal(size=5000)
    found = mean_with_interval(list(values))
    half = 1.96 * values.std() / np.sqrt(5000)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.05)


def record(operator, episode, reward, status="ended", **more):
    return {
        "operator_id": operator,
        "episode": episode,
        "status": status,
        "total_reward": reward,
        "episode_length": 10 + episode,
        **more,
    }


@pytest.fixture
def folder(tmp_path):
    """Three operators of four episodes: `a` ends all, `b` fails once, `c` was interrupted after one."""
    with Telemetry(tmp_path, "a") as telemetry:
        for episode, reward in enumerate([1.0, 2.0, 3.0, 4.0]):
            telemetry.episode(record("a", episode, reward, success=reward > 2, tokens=episode))
        for latency in range(1, 101):
            telemetry.step({"operator_id": "a", "latency_s": latency / 100})
    with Telemetry(tmp_path, "b") as telemetry:
        for episode, reward in [(1, 2.5), (0, 3.0)]:
            telemetry.episode(record("b", episode, reward))
        telemetry.episode(record("b", 2, 100.0, "failed", failure="b: process 7 exited"))
        telemetry.episode(record("b", 3, 2.0))
    with Telemetry(tmp_path, "c") as telemetry:
        telemetry.episode(record("c", 0, 0.0))
    return tmp_path


SOURCES = [Source("env", (name,), name, 4) for name in "abc"]


def test_what_tokens_cost_is_counted_in_failed_episodes_too(tmp_path):
    took = {"tokens": 1100, "prompt_tokens": 1000, "completion_tokens": 100}
    with Telemetry(tmp_path, "model") as telemetry:
        telemetry.episode(record("model", 0, 1.0, **took))
        telemetry.episode(record("model", 1, 0.0, "failed", **took))
        telemetry.episode(record("model", 2, 1.0, tokens=7))  # how they divide is unknown
    source = Source("env", ("model",), "model", 3, {"model": Price(2.0, 10.0)})
    ((one,),) = (group.operators for group in results_of(tmp_path, [source]))
    assert (one.tokens.mean, one.total_tokens) == (553.5, 2207)
    assert (one.cost.mean, one.cost.n, one.total_cost) == (pytest.approx(0.003), 1, 0.006)
    ((one,),) = (g.operators for g in results_of(tmp_path, [replace(source, prices={})]))
    assert (one.total_tokens, one.cost, one.total_cost) == (2207, None, None)


def test_means_are_over_the_episodes_that_ended(folder):
    (group,) = results_of(folder, SOURCES)
    a, b, c = group.operators
    assert (a.total_reward.mean, a.length.mean, a.success.mean) == (2.5, 11.5, 0.5)
    assert (a.tokens.mean, a.tokens.n, a.total_tokens) == (1.5, 4, 6)
    assert a.latency_s == Latency(pytest.approx(0.505), pytest.approx(0.9505))
    assert (b.total_reward.mean, b.asked, b.ended, b.failed) == (2.5, 4, 3, 1)
    assert b.failures == ("b: process 7 exited",)
    assert (b.success, b.tokens, b.latency_s) == (None, None, None)
    assert (c.total_reward, c.ended, c.failed) == (Mean(0.0, None, None, 1), 1, 0)


def test_differences_are_over_the_episodes_that_both_ended(folder):
    (group,) = results_of(folder, SOURCES)
    b, c = group.differences
    assert (b.operator_id, b.against) == ("b", "a")
    # 3 - 1, 2.5 - 2 and 2 - 4, by hand.
    assert (b.total_reward.mean, b.total_reward.n) == (pytest.approx(0.5 / 3), 3)
    assert (b.total_reward.low, b.total_reward.high) == (-2.0, 2.0)
    assert (b.unpaired, b.is_clear) == (1, False)
    assert (c.total_reward, c.unpaired) == (Mean(-1.0, None, None, 1), 3)
    (group,) = results_of(folder, SOURCES, "pairs")
    assert [(d.operator_id, d.against) for d in group.differences] == [
        ("b", "a"),
        ("c", "a"),
        ("c", "b"),
    ]


def test_a_reward_that_json_does_not_have_is_a_failure(tmp_path):
    with Telemetry(tmp_path, "a") as telemetry:
        telemetry.episode(record("a", 0, float("inf")))
        telemetry.episode(record("a", 1, 2.0))
    ((found,),) = (group.operators for group in results_of(tmp_path, SOURCES[:1]))
    assert (found.ended, found.failed, found.total_reward.mean) == (1, 1, 2.0)
    assert found.failures == ("its total reward is no finite number",)


def test_groups_are_apart(folder):
    sources = [Source(name, (name,), name, 4) for name in "ca"]
    groups = results_of(folder, [*sources, Source("c", ("d",), "d", 4)])
    assert [group.group for group in groups] == ["c", "a"]
    assert [len(group.differences) for group in groups] == [1, 0]
    d = groups[0].operators[1]
    assert (d.ended, d.failed, d.total_reward) == (0, 0, Mean(None, None, None, 0))


def test_the_table_says_which_differences_are_clear(tmp_path):
    for name, gain in (("a", 0.0), ("better", 2.0), ("same", 0.0)):
        with Telemetry(tmp_path, name) as telemetry:
            for episode in range(20):
                noise = episode % 3 if name == "same" else 1
                reward = 1.0 + gain + noise
                telemetry.episode(record(name, episode, reward, success=reward > 3))
    sources = [Source("env", (name,), name, 20) for name in ("a", "better", "same")]
    console = Console(width=200)
    with console.capture() as found:
        print_results(results_of(tmp_path, sources), console)
    lines = [" ".join(line.split()) for line in found.get().splitlines()]
    assert lines[:3] == [
        "env",
        "operator episodes failed reward [95 %] length [95 %] success % [95 %] median ms p95 ms",
        "a 20/20 0 2 [2, 2] 19.5 [16.95, 21.95] 0 [0, 16]",
    ]
    assert "better gains more than a: 2 [2, 2]; 20 paired episodes" in lines
    assert not any(line.startswith("same gains") for line in lines)
    with console.capture() as found:
        print_results(results_of(tmp_path, [sources[0], sources[2]]), console)
    assert "no difference is clear: the interval of each reaches zero" in found.get()


@pytest.mark.parametrize(
    ("group", "label"),
    [
        ("/home/me/examples/operators/room.py:make", "operators/room.py:make"),
        ("room.py:make {'size': 5}", "room.py:make {'size': 5}"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("chess (pettingzoo/classic/chess_v6)", "chess (pettingzoo/classic/chess_v6)"),
    ],
)
def test_labels_leave_out_where_a_file_is(group, label):
    assert GroupResult(group, (), ()).label == label
