"""Samples for the tests of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    NamedTuple,
    Samples,
    add_fields,
    allocate,
)
from parllel.transforms import Transform
from parllel.types import BatchSpec

SCALAR = np.float32(0.0)


def make_samples(
    T: int,
    B: int,
    observation: Any = SCALAR,
    *transforms: Transform,
    valid: bool = False,
    value_padding: int = 1,
) -> Samples:
    """Allocate samples with the fields of `transforms`, and bind these."""
    if isinstance(observation, dict):
        padded: Any = {name: Field(leaf, padding=1) for name, leaf in observation.items()}
    else:
        padded = Field(observation, padding=1)
    value = Field(np.float32(0.0), padding=value_padding)
    env = {name: np.bool_(False) for name in ("terminated", "truncated", "done")}
    if valid:
        env["valid"] = np.bool_(False)
    spec = BatchSpec(T, B)
    samples = allocate(
        Samples(
            agent=AgentSamples(action=np.int64(0), agent_info=NamedTuple(value=value)),
            env=EnvSamples(
                observation=padded, reward=np.float32(0.0), env_info=NamedTuple(), **env
            ),
        ),
        spec,
    )
    for transform in transforms:
        samples = add_fields(samples, transform.fields(samples), spec)
    for transform in transforms:
        transform.bind(samples)
    return samples


def padded_rows(array: Any) -> np.ndarray[Any, Any]:
    """Return a copy [T + 1, ...] of the body and the row after it."""
    return np.concatenate([np.asarray(array), np.asarray(array[array.last + 1])[np.newaxis]])


def write_padded_rows(array: Any, rows: np.ndarray[Any, Any]) -> None:
    """Write [T + 1, ...] into the body and the row after it."""
    np.asarray(array)[...] = rows[:-1]
    np.asarray(array[array.last + 1])[...] = rows[-1]
