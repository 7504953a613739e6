"""Several workers in threads of this process, put together by one function."""

from __future__ import annotations

import threading

import pytest
from waiting import until
from worker_setup import SPEC, T, make_sampler

from parllel.agents import weights_of
from parllel.distributed.rollouts import (
    EpisodeStatistics,
    FragmentSender,
    LocalRollouts,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
)
from parllel.distributed.rollouts.on_this_machine.worker_thread import WorkerThread
from parllel.errors import ClosedError, WorkerTimeoutError


def refuse(step):
    raise KeyError("refused")


def look_until_it_raises(workers, buffer):
    for _ in range(200):
        workers.check()
        buffer.fetch(1, 0.1)


class Build:
    """Builds workers, and keeps them; the one of number `broken` fails, in its first turn or at once."""

    def __init__(self, broken=None, at_once=False, handler=refuse):
        self.broken, self.at_once, self.handler = broken, at_once, handler
        self.workers, self.senders = [], []

    def __call__(self, place):
        fails = place.name == f"worker {self.broken}"
        if fails and self.at_once:
            raise KeyError(place.name)
        sender = FragmentSender(place.storage)
        place.stack.callback(sender.close, 0.0)
        self.senders.append(sender)
        worker = RolloutWorker(
            SynchronousSchedule(make_sampler()),
            fragment_length=T,
            seed=0,
            producer=place.name,
            sender=sender,
            statistics=place.statistics,
            progress_handler=self.handler if fails else None,
        )
        self.workers.append(worker)
        return worker


def test_all_workers_act_with_the_weights_that_were_given_last():
    build, statistics = Build(), EpisodeStatistics()
    with ReplayBuffer(64) as buffer, LocalRollouts(build, 3, buffer, statistics) as workers:
        assert [s.phase for s in workers.statuses()] == ["starting"] * 3
        weights = weights_of(build.workers[0].handler.agent)
        assert workers.load_weights(weights, 4)
        assert not workers.load_weights(weights, 4)
        fragments = buffer.fetch(3 * SPEC.B, 20)
        assert {fragment.newest_version for fragment in fragments} == {4}
        assert workers.load_weights(weights, 5)
        # A worker that the others outrun may have sent nothing yet since.
        while (
            min(fragment.newest_version for fragment in fragments) < 5
            or min(status.version for status in workers.statuses()) < 5
        ):
            fragments = buffer.fetch(6 * SPEC.B, 20)
        workers.check()
    assert [s.name for s in workers.statuses()] == ["worker 0", "worker 1", "worker 2"]
    assert workers.stats["workers/steps"] == sum(worker.n_steps for worker in build.workers)
    for status, sender in zip(workers.statuses(), build.senders, strict=True):
        sender.ledger.check()
        assert (status.phase, status.version) == ("ended", 5)
        assert status.counts == sender.ledger.counts()
    # Closed in the right order: a sender that is closed before its worker would have raised.
    assert len(statistics.drain()) > 0
    workers.close()
    with pytest.raises(ClosedError, match="worker 0: load_weights: the worker is closed"):
        workers.load_weights(weights, 6)


def test_what_ends_a_worker_is_raised():
    build = Build(broken=1)
    with (
        ReplayBuffer(64) as buffer,
        LocalRollouts(build, 2, buffer, EpisodeStatistics()) as workers,
    ):
        workers.load_weights(weights_of(build.workers[0].handler.agent), 1)
        buffer.fetch(SPEC.B, 20)
        with pytest.raises(KeyError, match="refused"):
            look_until_it_raises(workers, buffer)


def test_workers_that_were_built_before_a_failure_are_closed():
    build = Build(broken=2, at_once=True)
    with ReplayBuffer(64) as buffer, pytest.raises(KeyError, match="worker 2"):
        LocalRollouts(build, 3, buffer, EpisodeStatistics())
    assert [worker.status().phase for worker in build.workers] == ["ended"] * 2
    for sender in build.senders:
        with pytest.raises(ClosedError):
            sender.await_room(0)


def test_no_workers_are_refused():
    with (
        ReplayBuffer(1) as buffer,
        pytest.raises(ValueError, match="n_workers: expected at least 1, got 0"),
    ):
        LocalRollouts(Build(), 0, buffer, EpisodeStatistics())


def test_what_did_not_end_in_time_is_closed_by_the_next_call(monkeypatch):
    close = WorkerThread.close
    monkeypatch.setattr(WorkerThread, "close", lambda thread: close(thread, 0.2))
    entered, release = threading.Event(), threading.Event()

    def hang(step):
        entered.set()
        release.wait(20)

    build = Build(broken=0, handler=hang)
    with ReplayBuffer(64) as buffer:
        workers = LocalRollouts(build, 2, buffer, EpisodeStatistics())
        workers.load_weights(weights_of(build.workers[0].handler.agent), 1)
        assert entered.wait(20)
        with pytest.raises(WorkerTimeoutError, match="worker 0: its turn did not end"):
            workers.close()
        assert [status.phase for status in workers.statuses()] == ["running", "ended"]
        release.set()
        until(lambda: not any(one.name == "worker 0" for one in threading.enumerate()))
        workers.close()
        assert [status.phase for status in workers.statuses()] == ["ended", "ended"]
