"""Samples for the tests of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from parllel.buffers import Field, NamedTuple, Samples, add_fields
from parllel.testing.transform_samples import allocate_numbers
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
    value = Field(np.float32(0.0), padding=value_padding)
    samples = allocate_numbers(
        BatchSpec(T, B), observation=observation, agent_info=NamedTuple(value=value), valid=valid
    )
    return with_fields(samples, *transforms)


def with_fields(samples: Samples, *transforms: Transform) -> Samples:
    """Add the fields of `transforms`, in this order, and bind these."""
    spec = BatchSpec(*samples.env.reward.shape)
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
