"""What the manager keeps of starts that are over: nothing here starts Ray."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError

from parllel.distributed.rollouts import WorkerStatus, worker_records
from parllel.distributed.rollouts.on_ray import WorkerOptions, rollout_manager
from parllel.distributed.rollouts.worker_end import WorkerEnd


class Buffer:
    """Stands for the client of the buffer, its actor and that actor's method."""

    actor = added = property(lambda self: self)

    async def _added(self):
        return {"worker 0, start 1": 3}

    def remote(self):
        return self._added()


@pytest.fixture
def manager(monkeypatch):
    monkeypatch.setattr(rollout_manager, "end_with_raylet", lambda: None)
    monkeypatch.setattr(worker_records, "MAX_ENDS", 2)
    options = WorkerOptions(restarts=3)
    return rollout_manager.RolloutManager(b"", 1, options, "SPREAD", Buffer(), None)


async def report(manager, *statuses):
    for status in statuses:
        await manager.report(status, None, 0, 0.0)


def test_the_oldest_ends_become_one_sum(manager):
    ends = [
        WorkerStatus(f"worker 0, start {start}", "died", steps=start, reason=f"{start}")
        for start in range(1, 6)
    ]
    runs = WorkerStatus("worker 0, start 6", "running", steps=6)
    asyncio.run(report(manager, *ends, runs))
    first = asyncio.run(manager.statuses(fresh=False))
    again = asyncio.run(manager.statuses(fresh=False))
    assert [status.steps for status in first] == [1, 2, 3, 4, 5, 6]
    assert [(status.steps, status.starts) for status in again] == [(6, 3), (4, 1), (5, 1), (6, 1)]
    assert again[0].counts["accepted"] == again[0].counts["produced"] == 3
    assert asyncio.run(manager.statuses(fresh=False)) == again


class Starts:
    """Stands for the actors of one worker: each start ends as it is told to, and may be killed once."""

    def __init__(self, *ends):
        self.ends, self.started, self.killed = list(ends), [], []

    def start(self, kind, build, name, *arguments, **options):
        # A worker of which another is still there would share its environments' ports and files.
        assert len(self.killed) == len(self.started)
        self.started.append(name)
        actor = SimpleNamespace(name=name)
        actor.status = SimpleNamespace(remote=lambda: self._said(WorkerStatus(name, "running")))
        actor.run = SimpleNamespace(remote=self._end)
        return actor

    def kill(self, actor):
        self.killed.append(actor.name)

    async def _said(self, value):
        return value

    async def _end(self):
        end = self.ends.pop(0)
        if isinstance(end, Exception) and not isinstance(end, ArithmeticError):
            raise end
        return None if end is None else WorkerEnd.of(end, built=True)


async def supervise(manager, starts, monkeypatch):
    """Return what the trainer is told of a worker until that is over."""
    monkeypatch.setattr(rollout_manager, "start_actor", starts.start)
    monkeypatch.setattr(rollout_manager.ray, "kill", starts.kill)
    here = SimpleNamespace(current_actor=None)
    monkeypatch.setattr(rollout_manager.ray, "get_runtime_context", lambda: here)
    await manager.start()
    await asyncio.wait_for(asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}), 20)
    notices = []
    while (notice := await manager.notice(len(notices), 0.0)) is not None:
        notices.append(notice)
    return notices


def names(number, starts):
    return [rollout_manager.worker_name(number, start) for start in range(1, starts + 1)]


def test_what_the_first_start_raises_ends_the_run(manager, monkeypatch):
    starts = Starts(ArithmeticError("a mistake"))
    (notice,) = asyncio.run(supervise(manager, starts, monkeypatch))
    assert starts.started == starts.killed == names(0, 1)
    assert isinstance(notice, rollout_manager.Failure)


def test_what_a_later_start_raises_counts_against_the_budget(manager, monkeypatch):
    died = ActorUnavailableError("the node was cut off", None)
    starts = Starts(died, ArithmeticError("no space left"), ArithmeticError("again"), None)
    first, second = asyncio.run(supervise(manager, starts, monkeypatch))
    assert starts.started == starts.killed == names(0, 4)
    assert "start 2 raised, and is started again: no space left" in first
    assert "start 3 raised, and is started again: again" in second
    phases = [status.phase for status in asyncio.run(manager.statuses(fresh=False))]
    assert phases == ["died", "died", "died", "ended"]


def test_a_worker_whose_later_starts_always_raise_is_parked(manager, monkeypatch):
    died = ActorUnavailableError("the node was cut off", None)
    starts = Starts(died, *(ArithmeticError(f"number {n}") for n in range(9)))
    *_, parked, failure = asyncio.run(supervise(manager, starts, monkeypatch))
    assert starts.started == starts.killed == names(0, 4)
    assert parked.startswith("worker 0, start 4 is parked: ")
    assert isinstance(failure, rollout_manager.Failure)
    assert b"all workers are parked" in failure.error


def test_the_last_status_counts_after_a_report_of_a_worker_that_closes(manager, monkeypatch):
    starts = Starts()

    async def end():
        # The follower's report, while the environments of the failed worker close.
        await report(manager, WorkerStatus("worker 0", "ended", steps=1, counts={"produced": 1}))
        last = WorkerStatus("worker 0", "ended", steps=2, counts={"produced": 2, "stale": 1})
        monkeypatch.setattr(starts, "_said", lambda running: Starts._said(starts, last))
        return WorkerEnd.of(ArithmeticError("a mistake"), built=True)

    starts._end = end
    asyncio.run(supervise(manager, starts, monkeypatch))
    # One from before is on its way for long.
    asyncio.run(report(manager, WorkerStatus("worker 0", "running", steps=1)))
    (status,) = asyncio.run(manager.statuses(fresh=False))
    assert (status.phase, status.steps, status.counts["stale"]) == ("ended", 2, 1)
