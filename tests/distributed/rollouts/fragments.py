"""Steps and fragments whose numbers tell where they come from."""

from __future__ import annotations

import numpy as np

from parllel.buffers import NamedTuple
from parllel.distributed.rollouts import FragmentCutter, StepRecord


def observation(environment, number):
    """Return an observation; all differ."""
    return {"mark": np.array([environment, number], np.float32), "count": np.int64(number)}


def step_record(environment, number, *, end=None, version=0, after=None):
    """Return step `number` of an environment; what follows is observation `after`, by default the next."""
    after = number + 1 if after is None else after
    return StepRecord(
        environment,
        observation(environment, number),
        np.int64(number % 7),
        NamedTuple(value=np.float32(number / 2)),
        np.float32(-number),
        end == "terminated",
        end == "truncated",
        observation(environment, after),
        version,
        final_observation=observation(environment, -number) if end == "truncated" else None,
        rnn_state=np.array([number], np.float32),
    )


def make_fragment(sequence=0, *, length=2, version=0, producer="a", environment=0, epoch=0):
    """Return a fragment with the given identity; all of its steps have one version."""
    cutter = FragmentCutter(length, producer=producer)
    for _ in range(epoch):
        cutter.break_off(environment)
    for number in range((sequence + 1) * length):
        fragment = cutter.add_step(step_record(environment, number, version=version))
    assert fragment is not None
    return fragment
