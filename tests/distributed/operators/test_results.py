"""Means, intervals and differences, from telemetry with known numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from parllel.distributed.operators.experiments.intervals import ConfidenceInterval
from parllel.distributed.operators.experiments.results import (
    GroupResult,
    Latency,
    Price,
    Source,
    results_as_json,
    results_of,
)
from parllel.distributed.operators.experiments.results_report import draw_results, print_results
from parllel.distributed.operators.experiments.telemetry import Telemetry


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
    assert (c.total_reward, c.ended, c.failed) == (ConfidenceInterval(0.0, None, None, 1), 1, 0)


def test_differences_are_over_the_episodes_that_both_ended(folder):
    (group,) = results_of(folder, SOURCES)
    b, c = group.differences
    assert (b.operator_id, b.against) == ("b", "a")
    # 3 - 1, 2.5 - 2 and 2 - 4, by hand.
    assert (b.total_reward.mean, b.total_reward.n) == (pytest.approx(0.5 / 3), 3)
    assert (b.failed, b.unpaired, b.is_clear) == (1, 0, False)
    assert (c.total_reward, c.failed, c.unpaired) == (ConfidenceInterval(-1.0, None, None, 1), 0, 3)
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
    assert found.failures == ("its total reward is not a finite number",)


def test_groups_are_apart(folder):
    sources = [Source(name, (name,), name, 4) for name in "ca"]
    groups = results_of(folder, [*sources, Source("c", ("d",), "d", 4)])
    assert [group.group for group in groups] == ["c", "a"]
    assert [len(group.differences) for group in groups] == [1, 0]
    d = groups[0].operators[1]
    assert (d.ended, d.failed, d.total_reward) == (0, 0, ConfidenceInterval(None, None, None, 0))


def test_each_sentence_names_what_failed_and_what_was_left_out(folder):
    (group,) = results_of(folder, SOURCES)
    assert group.sentences == [
        "b: 1 of 4 episodes failed and is not in its means",
        "no clear difference between b and a: 0.1667 over 3 pairs, too few: at least 7 are needed, "
        "corrected for 2 comparisons; 1 pair is left out, as an episode failed",
        "no clear difference between c and a: -1 over 1 pair, too few: at least 7 are needed, "
        "corrected for 2 comparisons; 3 episodes have no pair",
    ]
    # Not begun: nothing is compared, and nothing is corrected for it.
    (group,) = results_of(folder, [*SOURCES[:1], Source("env", ("d",), "d", 4)])
    assert group.differences[0].comparisons == 1
    assert group.sentences == [
        "no clear difference between d and a: no pairs of episodes; 4 episodes have no pair"
    ]
    (group,) = results_of(folder, SOURCES[1:2])
    assert group.sentences == ["b: 1 of 4 episodes failed and is not in its means"]


def play(folder, name, rewards, *, seeds=None, failed=(), **more):
    """Write the episodes of an operator, one for each reward."""
    with Telemetry(folder, name) as telemetry:
        for episode, reward in enumerate(rewards):
            status = "failed" if episode in failed else "ended"
            seed = episode if seeds is None else seeds[episode]
            telemetry.episode(record(name, episode, reward, status, seed=seed, **more))


def sources(names, episodes=None, group="env"):
    return [Source(group, (name,), name, episodes) for name in names]


def test_episodes_are_pairs_by_their_seeds_whatever_their_numbers(tmp_path):
    seeds = list(range(20))
    play(tmp_path, "a", [float(seed) for seed in seeds])
    # Put on the board later, and in another order; seed 3 failed, and was played again at the end.
    other = [seed for seed in reversed(seeds) if seed > 1]
    play(tmp_path, "b", [seed + 0.5 for seed in [*other, 3]], seeds=[*other, 3], failed=[16])
    (group,) = results_of(tmp_path, sources("ab"))
    a, b = group.operators
    assert [(one.ended, one.asked, one.failed) for one in (a, b)] == [(20, 20, 0), (18, 19, 1)]
    (difference,) = group.differences
    assert difference.total_reward == ConfidenceInterval(0.5, None, None, 18)
    assert (difference.seeds, difference.failed, difference.unpaired) == (18, 0, 3)
    assert group.sentences == [
        "b: 1 of 19 episodes failed and is not in its means",
        "b gains more than a: 0.5 in each of 18 pairs; 3 episodes have no pair",
    ]


def test_a_pair_of_which_both_failed_is_left_out_too(tmp_path):
    play(tmp_path, "a", range(10), failed=[2, 4])
    play(tmp_path, "b", range(10), failed=[4, 5])
    (group,) = results_of(tmp_path, sources("ab", 10))
    (difference,) = group.differences
    assert (difference.total_reward.n, difference.failed, difference.unpaired) == (7, 3, 0)
    assert group.sentences[2] == (
        "no clear difference between b and a: 0 in each of 7 pairs; "
        "3 pairs are left out, as an episode failed"
    )


def test_a_seed_counts_once_however_often_it_was_played(tmp_path):
    play(tmp_path, "a", [1.0] * 30, seeds=[5, 6, 7] * 10)
    play(tmp_path, "b", [2.0, 3.0, 4.0] * 10, seeds=[5, 6, 7] * 10, success=True)
    (group,) = results_of(tmp_path, sources("ab"))
    (difference,) = group.differences
    assert (difference.total_reward, difference.seeds) == (
        ConfidenceInterval(2.0, None, None, 30),
        3,
    )
    assert group.sentences == [
        "no clear difference between b and a: 2 over 30 pairs of 3 seeds, too few: "
        "at least 6 seeds are needed"
    ]
    b = group.operators[1]
    assert (b.total_reward, b.success.n) == (ConfidenceInterval(3.0, None, None, 30), 30)
    assert b.success.low < 0.5  # of three successes
    # Agents that draw anew in the same environment are not the same again.
    for name, gain in (("c", 0.0), ("d", 1.0)):
        with Telemetry(tmp_path, name) as telemetry:
            for i in range(8):
                telemetry.episode(record(name, i, gain * i, seed=5, agent_seed=100 + i))
    (group,) = results_of(tmp_path, sources("cd"))
    assert group.differences[0].seeds == 8
    assert group.differences[0].is_clear


def test_an_episode_that_failed_and_was_played_again_is_named(tmp_path):
    play(tmp_path, "a", range(9), failed=[3])
    with Telemetry(tmp_path, "a", goes_on=True) as telemetry:
        telemetry.episode(record("a", 3, 3.0, seed=3))
        telemetry.episode(record("a", 3, 3.0, seed=3))  # written twice
    play(tmp_path, "b", range(9))
    for asked in (9, 5):  # never "9 of 5"
        (group,) = results_of(tmp_path, sources("ab", asked))
        a = group.operators[0]
        assert (a.ended, a.failed, a.asked) == (9, 1, 9)
        assert group.sentences[0] == "a: 1 of 10 episodes failed and is not in its means"
        assert group.differences[0].total_reward.n == 9


def test_the_chart_names_what_failed(folder, tmp_path):
    draw_results(tmp_path / "results.svg", results_of(folder, SOURCES))
    # Its text is in comments, beside the shapes of the letters.
    drawn = (tmp_path / "results.svg").read_text()
    assert "<!-- a -->" in drawn
    assert "<!-- b (1 failed) -->" in drawn
    assert "<!-- difference, mean and 95 % interval, corrected -->" in drawn


@pytest.mark.parametrize(("n_players", "comparisons"), [(4, "pairs"), (8, "first")])
@pytest.mark.few(1)
@pytest.mark.soak
def test_experiments_of_equal_players_seldom_claim_anything(tmp_path, n_players, comparisons):
    rng = np.random.default_rng(n_players)
    names, n_experiments = "abcdefgh"[:n_players], 250
    wrong = 0
    for experiment in range(n_experiments):
        folder = tmp_path / str(experiment)
        for name in names:
            play(folder, name, [float(x) for x in rng.exponential(size=12)])
        # Two environments of one experiment are corrected together.
        half = n_players // 2
        groups = [*sources(names[:half], 12, "one"), *sources(names[half:], 12, "two")]
        found = results_of(
            folder, groups if comparisons == "first" else sources(names), comparisons
        )
        wrong += any(one.is_clear for group in found for one in group.differences)
    assert wrong / n_experiments <= 0.05 + 3.72 * np.sqrt(0.05 * 0.95 / n_experiments)


def test_what_is_said_agrees_with_what_is_shown(tmp_path):
    rng = np.random.default_rng(0)
    n_clear = 0
    for experiment in range(60):
        folder = tmp_path / str(experiment)
        n = int(rng.integers(1, 25))
        for i, name in enumerate("abc"):
            play(folder, name, [float(x) for x in np.round(i + rng.normal(size=n))])
        (group,) = results_of(folder, sources("abc"), "pairs")
        for difference, shown in zip(
            group.differences, results_as_json([group])[0]["differences"], strict=True
        ):
            gain = difference.total_reward
            assert difference.comparisons == shown["comparisons"] == 3
            assert difference.is_clear == shown["is_clear"]
            assert ("no clear" not in difference.sentence) == difference.is_clear
            if gain.low is not None:
                assert difference.is_clear == (gain.low > 0 or gain.high < 0)
            elif n >= 7:
                assert difference.is_clear == (gain.mean != 0)
            else:
                assert not difference.is_clear
            n_clear += difference.is_clear
    assert n_clear > 30


def test_the_table_says_which_differences_are_clear(tmp_path):
    for name, gain in (("a", 0.0), ("better", 2.0), ("same", 0.0)):
        with Telemetry(tmp_path, name) as telemetry:
            for episode in range(20):
                noise = episode % 3 if name != "a" else 1
                reward = 1.0 + gain + noise
                telemetry.episode(record(name, episode, reward, success=reward > 4))
    found = results_of(tmp_path, sources(("a", "better", "same"), 20))
    lines = printed(found)
    assert lines[:3] == [
        "env",
        "operator episodes failed reward [95 %] length [95 %] success % [95 %] median ms p95 ms",
        "a 20/20 0 2 19.5 [16.7, 22.3] 0 [0, 16]",
    ]
    better, same = (one.total_reward for one in found[0].differences)
    assert lines[5:] == [
        "difference pairs failed unpaired reward [95 %, corrected]",
        f"better - a 20 0 0 {better}",
        f"same - a 20 0 0 {same}",
        f"better gains more than a: {better} over 20 pairs, corrected for 2 comparisons",
        f"no clear difference between same and a: {same} over 20 pairs, corrected for 2 comparisons",
        "",
    ]
    assert "difference pairs failed unpaired reward [95 %]" in printed(
        results_of(tmp_path, sources(("a", "same"), 20))
    )


def test_the_table_names_what_failed_of_a_single_operator(folder):
    lines = printed(results_of(folder, SOURCES[1:2]))
    assert lines[-2:] == ["b: 1 of 4 episodes failed and is not in its means", ""]


def printed(groups):
    """Return the lines of the tables, with single spaces."""
    console = Console(width=200)
    with console.capture() as found:
        print_results(groups, console)
    return [" ".join(line.split()) for line in found.get().splitlines()]


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
