from __future__ import annotations

import threading

import pytest

from parllel.cages import TrajInfo
from parllel.rollouts import EpisodeStatistics


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


def test_bad_arguments():
    with pytest.raises(ValueError, match="capacity: expected at least 1, got 0"):
        EpisodeStatistics(0)
    statistics = EpisodeStatistics()
    with pytest.raises(TypeError, match="report: expected TrajInfos, got a dict"):
        statistics.report([TrajInfo(), {"return": 1.0}])
    assert statistics.drain() == []
