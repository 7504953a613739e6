"""What the manager keeps of starts that are over: nothing here starts Ray."""

from __future__ import annotations

import asyncio

import pytest

from parllel.rollouts import WorkerStatus
from parllel.rollouts.on_ray import WorkerOptions, rollout_manager


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
    monkeypatch.setattr(rollout_manager, "_MOST_ENDS", 2)
    return rollout_manager.RolloutManager(b"", 1, WorkerOptions(), Buffer(), None)


def test_the_oldest_ends_become_one_sum(manager):
    for start in range(1, 6):
        name = f"worker 0, start {start}"
        manager._statuses[name] = WorkerStatus(name, "died", steps=start, reason=f"{start}")
    manager._statuses["worker 0, start 6"] = WorkerStatus("worker 0, start 6", "running", steps=6)
    first = asyncio.run(manager.statuses(fresh=False))
    again = asyncio.run(manager.statuses(fresh=False))
    assert [status.steps for status in first] == [1, 2, 3, 4, 5, 6]
    assert [(status.steps, status.starts) for status in again] == [(6, 3), (4, 1), (5, 1), (6, 1)]
    assert again[0].counts["accepted"] == again[0].counts["produced"] == 3
    assert asyncio.run(manager.statuses(fresh=False)) == again
