"""A trainer that is far slower than its workers, and a buffer that is slow to answer: nothing is lost."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest
import ray
from fragments import make_fragment
from ray_setup import (
    BOTH_WAYS,
    actor_pid,
    build_ready,
    check_ledgers,
    publish,
    quiet_statuses,
    rollouts,
    stored,
    wait_until,
)

from parllel.distributed.rollouts.on_ray import RayReplayBuffer, ray_replay_buffer
from parllel.errors import WorkerTimeoutError
from parllel.testing.dummy_envs import CountingEnv

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]
CAPACITY, QUEUE = 4, 2
MAY_GROW = 4 * 2**20


@pytest.mark.few(1)
@BOTH_WAYS
def test_workers_wait_and_memory_stays(ray_here, large_bytes):
    with rollouts(
        build_ready,
        2,
        capacity=CAPACITY,
        large_bytes=large_bytes,
        make_env=CountingEnv,
        sender_capacity=QUEUE,
    ) as (buffer, _, workers):
        publish(workers, 1)
        wait_until(lambda: buffer.prepared() == CAPACITY, "a full buffer")
        statuses = quiet_statuses(workers)
        steps = [status.steps for status in statuses]
        processes = [psutil.Process(actor_pid(status)) for status in statuses]
        before, (used, spilled) = [p.memory_info().rss for p in processes], stored()
        for version in range(2, 12):
            # Each is asked while its fragments cannot be sent.
            assert publish(workers, version)
            assert [status.steps for status in workers.ask_statuses()] == steps
            time.sleep(0.1)
        after, (used_then, spilled_then) = [p.memory_info().rss for p in processes], stored()
        assert max(b - a for a, b in zip(before, after, strict=True)) < MAY_GROW
        assert used_then - used < MAY_GROW
        assert spilled_then == spilled
        # One that does not answer does not hold up what is said of the others.
        processes[0].suspend()
        try:
            assert [status.steps for status in workers.ask_statuses()] == steps
        finally:
            processes[0].resume()
        total = check_ledgers(workers.ask_statuses(), buffer)
        assert total["queued"] >= 2 * QUEUE
        # They go on as soon as there is room.
        wait_until(lambda: sum(len(buffer.fetch(2, 1)) for _ in range(20)) >= 40, "more fragments")
        workers.check()


def test_fragments_that_come_too_late_are_handed_out_next(monkeypatch):
    with RayReplayBuffer(8) as buffer:
        pid = ray.get(buffer.actor.__ray_call__.remote(lambda _: os.getpid()))
        made = [make_fragment(sequence) for sequence in range(4)]
        assert buffer.add(made[:2], 10) == 2
        os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(ray_replay_buffer, "LATE_S", 0.2)
            with pytest.raises(
                WorkerTimeoutError, match="RayReplayBuffer: fetch: expected an answer"
            ):
                buffer.fetch(2, 0.1)
        os.kill(pid, signal.SIGCONT)
        # Two have left the buffer, of which the first is returned now.
        (first,) = buffer.fetch(1, 30)
        assert (buffer.prepared(), buffer.counts()["accepted"], buffer.counts()["queued"]) == (
            1,
            1,
            1,
        )
        assert buffer.add(made[2:], 10) == 2
        found = [first, *buffer.fetch(3, 30)]
        assert [one.digest() for one in found] == [one.digest() for one in made]
        assert buffer.counts() == {"added": 4, "accepted": 4, "stale": 0, "lost": 0, "queued": 0}
        assert buffer.fetch(1, 0.0) == []
