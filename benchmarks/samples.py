"""Batches for benchmarks of code that works on samples."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    NamedTuple,
    Samples,
    allocate,
    insert_field,
)
from parllel.types import BatchSpec, Tree


def make_samples(
    batch_spec: BatchSpec,
    action: Field,
    observation: Any,
    agent_info: Tree = None,
    storage: Literal["local", "managed"] = "local",
) -> Samples:
    """Allocate a batch for examples of an action, an observation, and what the agent says besides."""
    flag = np.bool_(False)
    samples: Samples = allocate(
        Samples(
            agent=AgentSamples(action=action, agent_info=agent_info),
            env=EnvSamples(
                observation=Field(observation, padding=1),
                reward=np.float32(0),
                terminated=flag,
                truncated=flag,
                done=flag,
                env_info=None,
            ),
        ),
        batch_spec,
        storage=storage,
    )
    return samples


def make_policy_samples(T: int, B: int, n_features: int) -> Samples:
    """Allocate a batch for a policy with values and discrete actions, with random observations."""
    scalar = np.float32(0)
    info = NamedTuple(value=Field(scalar, padding=1), log_prob=scalar)
    action, features = Field(0, dtype=np.int64), np.zeros(n_features, np.float32)
    samples = make_samples(BatchSpec(T, B), action, features, info)
    observation = samples.env.observation
    generator = np.random.default_rng(0)
    for t in range(T + 1):
        observation[t] = generator.normal(size=(B, n_features))
    checked: Samples = insert_field(samples, "agent.observation", observation)
    return checked
