"""From the row that an environment wrote, a value is copied twice: to its fragment and to a batch."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
import pytest

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import VectorizedCage
from parllel.distributed.rollouts import (
    FragmentCutter,
    FragmentSampler,
    FragmentSender,
    ReplayBuffer,
)
from parllel.samplers import BasicSampler
from parllel.testing.dummy_agents import CountingAgent
from parllel_patterns import allocate_samples

T, B = 32, 4
SPEC = BatchSpec(T, B)
SHAPE = (64, 64)


class LargeEnv(gym.Env):
    """Observations are far larger than all else, so that memory tells how often they are copied."""

    observation_space = gym.spaces.Box(0, 1e6, SHAPE, np.float32)
    action_space = gym.spaces.Discrete(4)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(SHAPE, self.steps, np.float32), {}

    def step(self, action):
        self.steps += 1
        end = self.steps % 5 == 0
        return np.full(SHAPE, self.steps, np.float32), 0.5, end, False, {}


def make_parts():
    cages = [VectorizedCage([LargeEnv] * B, seeds=list(range(B)))]
    handler = NumpyHandler(CountingAgent(4))
    return cages, handler, allocate_samples(cages, SPEC, handler)


@contextmanager
def most_allocated():
    """Yield a list that gets the most bytes that were allocated at one time."""
    found = []
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        yield found
        found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [T, 12, 2 * T])
def test_a_fragment_is_copied_from_its_rows_once(length):
    cages, handler, samples = make_parts()
    cutter = FragmentCutter(length)
    with BasicSampler(SPEC, cages, handler, samples) as sampler:
        for _ in range(2):  # rows of the first batch may be in fragments that the second completes
            batch, _ = sampler.collect_batch(0)
            with most_allocated() as found:
                fragments = cutter.add_batch(batch, 0)
    begun = B * (2 * T % length > 0)
    # With the observation after each fragment; those that were begun have all of their memory.
    least = (len(fragments) + begun) * length * np.prod(SHAPE) * 4
    assert found[0] < 1.3 * least + 100_000
    for fragment in fragments:
        assert not np.shares_memory(fragment.env.observation, np.asarray(batch.env.observation))


def test_nothing_is_copied_on_the_way_to_the_batch_and_all_once_there():
    cages, handler, samples = make_parts()
    cutter = FragmentCutter(T)
    with BasicSampler(SPEC, cages, handler, samples) as sampler:
        fragments = cutter.add_batch(sampler.collect_batch(0)[0], 0)
        size = sum(fragment.nbytes for fragment in fragments)
        with ReplayBuffer(2 * B, max_reuse=2) as buffer, FragmentSender(buffer) as sender:
            with most_allocated() as found:
                sender.put(*fragments)
                assert sender.flush(30)
                assert all(a is b for a, b in zip(buffer.borrow(B, 1), fragments, strict=True))
            assert found[0] < size / 10
            cages, handler, samples = make_parts()
            with cages[0], FragmentSampler(SPEC, buffer, handler, samples) as trainers:
                with most_allocated() as found:
                    batch, _ = trainers.collect_batch(0)
                # Straight to memory that was there before; the agent computes values of some rows.
                assert found[0] < size / 4
                expected = np.stack([f.env.observation for f in fragments], axis=1)
                np.testing.assert_array_equal(np.asarray(batch.env.observation), expected)
