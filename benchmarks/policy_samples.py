"""The batch that benchmarks of policies act on."""

from __future__ import annotations

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
from parllel.types import BatchSpec


def make_policy_samples(T: int, B: int, n_features: int) -> Samples:
    """Allocate a batch for a policy with values and discrete actions, with random observations."""
    scalar, flag = np.float32(0), np.bool_(False)
    info = NamedTuple(value=Field(scalar, padding=1), log_prob=scalar)
    samples: Samples = allocate(
        Samples(
            agent=AgentSamples(action=Field(0, dtype=np.int64), agent_info=info),
            env=EnvSamples(
                observation=Field(np.zeros(n_features, np.float32), padding=1),
                reward=scalar,
                terminated=flag,
                truncated=flag,
                done=flag,
                env_info=None,
            ),
        ),
        BatchSpec(T, B),
    )
    observation = samples.env.observation
    generator = np.random.default_rng(0)
    for t in range(T + 1):
        observation[t] = generator.normal(size=(B, n_features))
    checked: Samples = insert_field(samples, "agent.observation", observation)
    return checked
