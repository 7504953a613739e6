"""A buffer that is slow to answer: what comes late is not lost."""

from __future__ import annotations

import os
import signal

import pytest
import ray
from fragments import make_fragment

from parllel.distributed.rollouts.on_ray import RayReplayBuffer, ray_replay_buffer
from parllel.errors import WorkerTimeoutError

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300), pytest.mark.usefixtures("ray_here")]


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
