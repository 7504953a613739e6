"""Trees that cross pipes in the tests, and what they hold."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np

from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    NamedArrayTuple,
    Samples,
    allocate,
    buffer_leaves,
)
from parllel.types import BatchSpec


def samples(storage: Any = "managed", batches: int = 1, T: int = 4, B: int = 3) -> Samples:
    """A nested tree in which every element differs from all others."""
    example = Samples(
        agent=AgentSamples(action=0, agent_info=NamedArrayTuple(value=0.0, extra=None)),
        env=EnvSamples(
            observation={"image": np.zeros((2, 2), np.uint8), "arms": (0.0, np.zeros(3))},
            reward=0.0,
            terminated=False,
            truncated=False,
            done=False,
            env_info=None,
        ),
    )
    tree: Samples = allocate(example, BatchSpec(T, B), storage=storage, padding=1, batches=batches)
    for number, (_, leaf) in enumerate(buffer_leaves(tree)):
        whole = np.asarray(leaf.full)
        whole[...] = np.arange(whole.size).reshape(whole.shape) + 1000 * number
    return tree


def nodes(tree: Any) -> list[Any]:
    """All nodes, inner ones and leaves, found by this test's own walk."""
    if not isinstance(tree, NamedArrayTuple):
        return [] if tree is None else [tree]
    return [tree, *(node for child in tree._asdict().values() for node in nodes(child))]


def contents(tree: Any) -> dict[str, Any]:
    return {path: np.asarray(leaf).tolist() for path, leaf in buffer_leaves(tree)}


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
