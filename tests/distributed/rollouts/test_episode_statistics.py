from __future__ import annotations

import threading

import numpy as np
import pytest
from producers import make_fragment_sampler, make_parts

from parllel.cages import TrajInfo
from parllel.distributed.rollouts import EpisodeStatistics
from parllel.runs import load_state, save_state


class Digger(TrajInfo):
    """With numbers and a text of its own."""

    def __init__(self, blocks, name="x"):
        super().__init__()
        self.blocks = blocks
        self.name = name


def digger(blocks, return_=0.0):
    traj = Digger(blocks)
    traj.step(None, None, return_, True, False, {})
    return traj


def test_whole_episodes_arrive_in_order():
    statistics = EpisodeStatistics()
    trajs = [digger(1), TrajInfo(), digger(2)]
    statistics.report(trajs[:2], "dig")
    statistics.report(trajs[2:])
    assert all(one is other for one, other in zip(statistics.drain(), trajs, strict=True))
    assert statistics.drain() == []
    assert statistics.episodes == {"dig": 2, "": 1}


def test_means_by_task():
    statistics = EpisodeStatistics()
    statistics.report([digger(1, 5.0), digger(4, 6.0)], "dig")
    statistics.report([digger(7)])
    expected = {
        "dig/blocks": 2.5,
        "dig/discounted_return": 5.5,
        "dig/episodes": 2,
        "dig/length": 1.0,
        "dig/return": 5.5,
    }
    assert statistics.stats == expected
    # What some episodes do not have is no mean of all; draining changes no means.
    statistics.report([TrajInfo()], "dig")
    statistics.drain()
    assert "dig/blocks" not in statistics.stats
    assert statistics.stats["dig/episodes"] == 3


def test_means_are_over_the_last_episodes():
    statistics = EpisodeStatistics()
    for blocks in range(250):
        statistics.report([digger(blocks)], "dig")
    assert statistics.stats["dig/blocks"] == sum(range(150, 250)) / 100
    assert statistics.stats["dig/episodes"] == 250


def test_counters_and_means_go_on_from_a_checkpoint(tmp_path):
    one, other, whole = (EpisodeStatistics(capacity=40) for _ in range(3))
    blocks = [np.float32(3), 2, True, float("inf"), *range(60)]
    for statistics in (one, whole):
        statistics.report([digger(b, b / 8) for b in blocks], "dig")
        statistics.report([digger(1), TrajInfo()])
    save_state(tmp_path / "state.zip", one.state())
    other.report([digger(7)], "gone")
    other.load_state(load_state(tmp_path / "state.zip"))
    assert other.stats == whole.stats
    for statistics in (other, whole):
        statistics.report([digger(b) for b in range(70)], "dig")
        statistics.report([digger(5)], "new")
    assert other.stats == whole.stats
    assert other.episodes == whole.episodes == {"dig": 134, "": 2, "new": 1}
    assert other.state() == {**whole.state(), "dropped": other.dropped}


def test_a_checkpoint_of_a_sampler_has_them():
    buffer, statistics, _ = make_parts()
    statistics.report([digger(3)], "dig")
    fresh = EpisodeStatistics()
    with (
        make_fragment_sampler(buffer, statistics=statistics) as sampler,
        make_fragment_sampler(buffer, statistics=fresh) as other,
        make_fragment_sampler(buffer) as without,
    ):
        state = sampler.state()
        other.load_state(state)
        assert other.stats["dig/episodes"] == 1
        assert other.stats["dig/blocks"] == 3
        # A run may be resumed without, or from a checkpoint of before there were any.
        without.load_state(state)
        for old in (
            {**state, "statistics": None},
            {k: v for k, v in state.items() if k != "statistics"},
        ):
            other.load_state(old)
            assert other.stats["dig/episodes"] == 1
        with pytest.raises(ValueError, match="EpisodeStatistics: expected the state of"):
            other.load_state({**state, "statistics": {"episodes": 3}})


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 3, "transforms": []},
        {"dropped": 0, "tasks": {"dig": {"episodes": 3}}},
        {"dropped": 0, "tasks": {"dig": {"episodes": -1, "recent": []}}},
        {"dropped": 0, "tasks": {"dig": {"episodes": 1, "recent": [{"return": "much"}]}}},
        {"dropped": 0, "tasks": [3]},
    ],
)
def test_states_of_something_else_are_refused(state):
    statistics = EpisodeStatistics()
    statistics.report([digger(7)], "dig")
    before = statistics.state()
    with pytest.raises(ValueError, match=r"^EpisodeStatistics: expected the state of") as caught:
        statistics.load_state(state)
    assert "\n" not in str(caught.value)
    assert statistics.state() == before


def test_episodes_that_are_not_taken_are_bounded():
    statistics = EpisodeStatistics(capacity=3)
    trajs = [digger(i) for i in range(5)]
    statistics.report(trajs[:2])
    statistics.report(trajs[2:])
    assert statistics.dropped == 2
    assert [traj.blocks for traj in statistics.drain()] == [2, 3, 4]


def test_threads_lose_nothing():
    statistics, taken = EpisodeStatistics(), []

    def report():
        for i in range(300):
            statistics.report([digger(i)], "dig")

    threads = [threading.Thread(target=report) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += statistics.drain()
    for thread in threads:
        thread.join()
    taken += statistics.drain()
    assert sorted(traj.blocks for traj in taken) == sorted(list(range(300)) * 3)


def test_numbers_beyond_floats_have_no_mean():
    statistics = EpisodeStatistics()
    statistics.report([digger(10**400)], "dig")
    assert "dig/blocks" not in statistics.stats
    assert statistics.stats["dig/episodes"] == 1


def test_bad_arguments():
    with pytest.raises(ValueError, match="capacity: expected at least 1, got 0"):
        EpisodeStatistics(0)
    statistics = EpisodeStatistics()
    with pytest.raises(TypeError, match="report: expected TrajInfos, got a dict"):
        statistics.report([TrajInfo(), {"return": 1.0}])
    assert statistics.drain() == []
