"""Samples for tests of transforms, with plausible random numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.allocation import Field, allocate
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.samples import AgentSamples, EnvSamples, Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.types import BatchSpec, Tree

NO_ACTION = np.int64(0)
VALUE = NamedTuple(value=Field(np.float32(0), padding=1))


def allocate_numbers(
    batch_spec: BatchSpec,
    *,
    observation: Tree,
    action: Tree = NO_ACTION,
    agent_info: Tree = VALUE,
    env_info: Tree = None,
    valid: bool = False,
    **memory: Any,
) -> Samples:
    """Allocate samples without the fields of transforms.

    observation: example of one cell, or Fields.  action, agent_info: the same.  valid: with `env.valid`.
    memory: further arguments of `allocate`, such as `storage`.
    """
    ends = dict.fromkeys(("terminated", "truncated", "done"), np.bool_(False))
    if valid:
        ends["valid"] = np.bool_(False)
    samples: Samples = allocate(
        Samples(
            agent=AgentSamples(action=action, agent_info=agent_info),
            env=EnvSamples(
                observation=buffer_map(_padded, observation),
                reward=np.float32(0),
                **ends,
                env_info=env_info,
            ),
        ),
        batch_spec,
        **memory,
    )
    return samples


def _padded(leaf: Any) -> Field:
    return leaf if isinstance(leaf, Field) else Field(leaf, padding=1)


def write_numbers(samples: Samples, seed: int, *, but: Iterable[int] = ()) -> None:
    """Write random numbers to every array, row T included, except those whose block keys are given.

    `env.done` is `terminated or truncated`. With `env.valid` each column is a piece of one episode, as a
    RecurrentSampler leaves it: what follows its end is not valid, and no end is marked there.
    """
    rng, done = np.random.default_rng(seed), set(but)
    for _, leaf in buffer_leaves(samples):
        if isinstance(leaf, Array) and leaf.block.key not in done:
            # Once for each memory: `agent.observation` may be `env.observation` under another path.
            done.add(leaf.block.key)
            for rows in rows_of(leaf):
                rows[...] = _random(rng, rows)
    env = samples.env
    if not set(but).isdisjoint(
        leaf.block.key for leaf in (env.terminated, env.truncated, env.done)
    ):
        return
    terminated, truncated = np.asarray(env.terminated), np.asarray(env.truncated)
    T, B = terminated.shape
    # With T = 5, columns with no end, with one and with several.
    ends = rng.random((T, B)) < 0.3
    if "valid" in env._fields:
        # An environment stops at its first end: nothing is valid after it.
        played = np.cumsum(ends, axis=0) <= ends
        np.asarray(env.valid)[...] = played
        ends &= played
    kinds = rng.random((T, B)) < 0.5
    terminated[...], truncated[...] = ends & kinds, ends & ~kinds
    np.asarray(env.done)[...] = ends


def numbers_of(samples: Samples) -> dict[str, NDArray[Any]]:
    """Return a copy of each leaf by its path, [T, B, ...], or [T + 1, B, ...] if it has padding."""
    return {
        path: np.concatenate(rows_of(leaf))
        for path, leaf in buffer_leaves(samples)
        if isinstance(leaf, Array)
    }


def rows_of(array: Array) -> list[NDArray[Any]]:
    """Return views of the body and, where there is padding, of row T, [1, B, ...]."""
    rows = [np.asarray(array)]
    if array.padding:
        rows.append(np.asarray(array[array.last + 1])[np.newaxis])
    return rows


def _random(rng: np.random.Generator, like: NDArray[Any]) -> NDArray[Any]:
    if like.dtype.kind == "f":
        # Neither centred nor of unit variance, so that normalising shows.
        return rng.normal(2.0, 3.0, like.shape)
    most = {"b": 2, "i": 9, "u": 256}[like.dtype.kind]
    return rng.integers(0, most, like.shape)
