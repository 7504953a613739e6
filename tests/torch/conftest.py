"""A batch of samples as a sampler and the transforms would leave it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parllel.agents import agent_examples
from parllel.buffers import AgentSamples, EnvSamples, Field, Samples, allocate, insert_field
from parllel.torch import TorchHandler
from parllel.types import BatchSpec

# Networks this small take longer with more threads, and many times as long beside other programs.
torch.set_num_threads(1)


def allocate_samples(handler, T, B, dtype, valid, n_inputs):
    """Allocate from examples, in the order of a build script."""
    observation = np.zeros(n_inputs, dtype)
    action, agent_info = agent_examples(handler, observation)
    real = Field(dtype(0), dtype=dtype)
    samples = allocate(
        Samples(
            agent=AgentSamples(
                action=Field(action, dtype=action.dtype),
                agent_info={
                    name: Field(field.example, field.padding, dtype)
                    for name, field in agent_info._asdict().items()
                },
                advantage=real,
                return_=real,
                final_value=real,
            ),
            env=EnvSamples(
                observation=Field(observation, padding=1, dtype=dtype),
                reward=real,
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
                valid=False if valid else None,
            ),
        ),
        BatchSpec(T, B),
    )
    return insert_field(samples, "agent.observation", samples.env.observation)


def fill_samples(handler, samples, seed):
    """Sample one batch of made-up observations, advantages and returns."""
    rng = np.random.default_rng(seed)
    observation = samples.agent.observation
    T, B = observation.shape[:2]
    for t in range(T + 1):
        observation[t] = rng.normal(size=observation.shape[1:])
    handler.sample_mode()
    handler.start_batch()
    for t in range(T):
        handler.step(t, slice(0, B))
    handler.bootstrap_value(T, slice(0, B))
    np.asarray(samples.agent.advantage)[:] = rng.normal(size=(T, B))
    np.asarray(samples.agent.return_)[:] = rng.normal(size=(T, B))


@pytest.fixture
def make_batch():
    """Return a function that gives `(samples, handler)` for an agent, filled."""

    def make(agent, T=8, B=6, *, dtype=np.float32, valid=False, seed=0, n_inputs=4):
        handler = TorchHandler(agent)
        samples = allocate_samples(handler, T, B, dtype, valid, n_inputs)
        handler.bind(samples)
        fill_samples(handler, samples, seed)
        return samples, handler

    return make


@pytest.fixture
def refill():
    """Return the function that samples the next batch into the same buffer."""
    return fill_samples
