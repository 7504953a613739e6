"""Episodes that nobody drains are bounded and counted: nothing here starts Ray."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from parllel.cages import TrajInfo
from parllel.distributed.rollouts import EpisodeStatistics
from parllel.distributed.rollouts.on_ray import RayEpisodeStatistics, ray_episode_statistics


def start_here(kind, *arguments, **options):
    """Make an actor in this process, whose methods are called at once."""
    actor = kind(*arguments)
    return SimpleNamespace(
        report=SimpleNamespace(remote=actor.report), drain=SimpleNamespace(remote=actor.drain)
    )


@pytest.fixture
def statistics(monkeypatch):
    module = ray_episode_statistics
    monkeypatch.setattr(module, "start_actor", start_here)
    monkeypatch.setattr(module, "RayConnection", lambda: SimpleNamespace(holds=True))
    for name in ("here", "end_with_raylet"):
        monkeypatch.setattr(module, name, lambda: None)
    monkeypatch.setattr(module, "answer", lambda reference, *arguments: reference)
    monkeypatch.setattr(module.ray, "wait", lambda references, timeout: (references, []))
    monkeypatch.setattr(module.ray, "kill", lambda actor: None)
    with RayEpisodeStatistics(capacity=3) as statistics:
        yield statistics


def test_episodes_that_are_not_taken_are_bounded(statistics):
    own = EpisodeStatistics()
    reporter = ray_episode_statistics.EpisodeReporter(own, statistics.actor)
    trajs = [TrajInfo() for _ in range(8)]
    for number, traj in enumerate(trajs):
        traj.number = number
    # The messages of a worker, with some episodes each.
    for some in (trajs[:2], trajs[2:3], trajs[3:4], trajs[4:5], trajs[5:6]):
        own.report(some, "dig")
        reporter.send()
    assert [traj.number for traj in statistics.drain()] == [3, 4, 5]
    assert statistics.dropped == 3
    own.report(trajs[6:], "dig")
    reporter.send()
    # The actor answers a call with what it had at that time.
    assert [traj.number for _ in range(2) for traj in statistics.drain()] == [6, 7]
    assert statistics.dropped == 3
    # Whole messages: it holds no more episodes than that.
    for message in (b"first", b"second"):
        statistics.actor.report.remote(message, 2)
    assert statistics.actor.drain.remote() == ([b"second"], 2)


def test_a_message_above_the_capacity_loses_only_what_is_beyond_it(statistics):
    own = EpisodeStatistics()
    own.report([TrajInfo() for _ in range(5)])
    ray_episode_statistics.EpisodeReporter(own, statistics.actor).send()
    assert len(statistics.drain()) == 3
    assert statistics.dropped == 2
