"""Policies of networks act alike in both schedules, though products round differently for few rows."""

from __future__ import annotations

import gymnasium as gym
import pytest
from worker_setup import collect

from parllel import BatchSpec, Seeds
from parllel.cages import VectorizedCage
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    SynchronousSchedule,
)
from parllel.samplers import BasicSampler
from parllel.torch import SmallPolicyHandler, TorchHandler, agent_for
from parllel_patterns import allocate_samples

N, LENGTH = 8, 16  # a multiple of four, as the rule wants it


def make_schedule(kind, handler_class, batch_size=N):
    cages = [
        VectorizedCage([lambda: gym.make("CartPole-v1")], seeds=[i], index=i) for i in range(N)
    ]
    handler = handler_class(agent_for(cages[0].spaces, seeds=Seeds(0)))
    spec = BatchSpec(20 if kind == "rows" else 2, N)
    samples = allocate_samples(cages, spec, handler, next_observation=kind == "rows")
    if kind == "rows":
        return SynchronousSchedule(BasicSampler(spec, cages, handler, samples))
    return AsynchronousSchedule(cages, handler, samples, batch_size=batch_size, max_wait_s=0.01)


def digests_of(schedule):
    fragments = collect(schedule, 4 * LENGTH * N, length=LENGTH)
    return {fragment.key[1:]: fragment.digest() for fragment in fragments}


@pytest.mark.parametrize("handler_class", [TorchHandler, SmallPolicyHandler])
def test_blocks_of_any_size_round_alike(handler_class):
    expected = digests_of(make_schedule("rows", handler_class))
    for batch_size in (1, 6):
        found = digests_of(make_schedule("ready", handler_class, batch_size))
        both = expected.keys() & found.keys()
        assert len(both) > 2 * N
        assert {key: found[key] for key in both} == {key: expected[key] for key in both}
