"""What workers on Ray make is what workers in this process make."""

from __future__ import annotations

import pytest
from ray_setup import BOTH_WAYS, rollouts
from worker_setup import LENGTH, SEED, B, collect, digests, make_cages, ready, rows

from parllel.distributed.rollouts import FragmentSender, RolloutWorker

pytestmark = pytest.mark.heavy
WHOLE = 5  # fragments of each environment that are compared


def make_schedule(kind):
    return rows() if kind == "rows" else ready(make_cages("single"), batch_size=3)


def build_either(place):
    """Worker 0 has the schedule in rows, worker 1 the other; everything else is the same."""
    sender = FragmentSender(place.storage)
    place.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        make_schedule("rows" if place.name == "worker 0" else "ready"),
        fragment_length=LENGTH,
        seed=SEED,
        producer=place.name,
        sender=sender,
        statistics=place.statistics,
    )


def local_digests(kind):
    return digests(collect(make_schedule(kind), 4 * WHOLE * LENGTH * B, published={}), WHOLE)


@BOTH_WAYS
@pytest.mark.usefixtures("ray_here")
def test_fragments_equal_those_of_this_process_with_both_schedules(large_bytes):
    with rollouts(build_either, 2, large_bytes=large_bytes) as (buffer, _, workers):
        assert workers.load_weights({}, 1)
        found = []
        while True:
            found += buffer.fetch(8, 20)
            sorted_ = {n: [f for f in found if f.producer == f"worker {n}"] for n in range(2)}
            try:
                remote = {n: digests(sorted_[n], WHOLE) for n in range(2)}
                break
            except AssertionError:
                workers.check()
    assert remote[0] == remote[1] == local_digests("rows") == local_digests("ready")
