"""Noise that a handler leaves in the samples for policies elsewhere."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from parllel.agents import Agent, NumpyHandler, noise_example
from parllel.buffers import NamedTuple, buffer_leaves
from parllel.cages import VectorizedCage
from parllel.testing import CountingEnv
from parllel.testing.dummy_agents import CountingAgent
from parllel.types import BatchSpec
from parllel_patterns import allocate_samples

SPEC = BatchSpec(3, 2)


class TwoNoises(CountingAgent):
    """Draws a tree, of which a part is float64."""

    def step(self, observation, *, env_indices=slice(None), noise=None):
        return super().step(observation, noise=None if noise is None else noise.whole)

    def draw_noise(self, T, B):
        real = self._generator.normal(size=(T, B, 2))
        return NamedTuple(whole=super().draw_noise(T, B), real=real)


class Noiseless(Agent):
    def step(self, observation, *, env_indices=slice(None), noise=None):
        return np.zeros(len(observation), np.int64), None


@pytest.fixture
def cage():
    with VectorizedCage([partial(CountingEnv, 2)] * SPEC.B, seeds=range(SPEC.B)) as cage:
        yield cage


@pytest.mark.parametrize("make", [CountingAgent, TwoNoises])
def test_the_noise_of_each_batch_is_in_the_samples(cage, make):
    handler, plain = NumpyHandler(make(4, seed=3)), make(4, seed=3)
    samples = allocate_samples([cage], SPEC, handler, noise=True)
    handler.bind(samples)
    for _ in range(2):
        handler.start_batch()
        # The same as an agent draws that nobody asked for an example.
        expected = dict(buffer_leaves(plain.draw_noise(*SPEC.shape)))
        found = dict(buffer_leaves(samples.agent.noise))
        assert found.keys() == expected.keys()
        for path, array in expected.items():
            assert found[path].dtype == array.dtype
            np.testing.assert_array_equal(np.asarray(found[path]), array)


def test_modes_without_noise_leave_it_alone(cage):
    handler = NumpyHandler(CountingAgent(4))
    samples = allocate_samples([cage], SPEC, handler, noise=True)
    handler.bind(samples)
    handler.start_batch()
    before = np.array(samples.agent.noise)
    handler.eval_mode()
    handler.start_batch()
    np.testing.assert_array_equal(np.asarray(samples.agent.noise), before)


def test_the_mode_stays_as_it_is():
    agent = CountingAgent(4)
    handler = NumpyHandler(agent)
    handler.train_mode()
    field = noise_example(handler)
    assert agent.mode == "train"
    assert np.shape(field.example) == ()


def test_samples_have_no_noise_unless_asked_for(cage):
    samples = allocate_samples([cage], SPEC, NumpyHandler(CountingAgent(4)))
    assert "noise" not in samples.agent._fields


def test_agents_without_noise_are_refused(cage):
    with pytest.raises(ValueError, match="noise: expected an agent that draws noise"):
        allocate_samples([cage], SPEC, NumpyHandler(Noiseless()), noise=True)
