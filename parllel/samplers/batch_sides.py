"""Where the batches of a sampler go, so that one can be read while the next is made.

    in place   the sampler's own buffer switches: nothing is copied, it binds everything anew each batch
    Copies     any other sampler: each finished batch is copied into a side of a second buffer

Binding makes some thousand views, copying moves the batch once: it is cheaper up to some 30 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from parllel.arrays import (
    Arena,
    Array,
    SwitchingArray,
    SwitchingManagedMemoryArray,
    SwitchingRotatingManagedMemoryArray,
    aligned,
)
from parllel.buffers import Samples, buffer_arrays, buffer_leaves, buffer_map
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.sampler import Sampler


def sides_of(sampler: Sampler) -> Callable[[Samples], Samples]:
    """Return what makes of a finished batch the switching arrays that hold it, on their present side.

    Raises:
        ValueError: if some arrays of its buffer switch and others do not, or it cannot follow them.
    """
    samples = getattr(sampler, "samples", None)
    switching = [isinstance(array, SwitchingArray) for array in buffer_arrays(samples)]
    if not any(switching):
        return Copies().take
    name = type(sampler).__name__
    if not all(switching):
        raise ValueError(
            f"{name}: samples: expected arrays that all switch, or none; got a mixture"
        )
    if not isinstance(sampler, BatchSampler):
        raise ValueError(
            f"{name}: expected a subclass of BatchSampler for a buffer that switches; without "
            "switching=True its batches are copied"
        )
    return _as_they_are


def _as_they_are(samples: Samples) -> Samples:
    return samples


class Copies:
    """Copy finished batches, padding included, into the sides of a buffer of our own."""

    def __init__(self) -> None:
        self._mirror: Any = None
        self._pairs: list[tuple[Any, Any]] = []
        self._source: Any = None
        self._side = 0

    def take(self, samples: Samples) -> Samples:
        """Copy the batch to the other side than the last one."""
        if self._mirror is None:
            self._mirror = mirror_of(samples)
        if samples is not self._source:
            self._source, self._pairs = samples, _pairs_of(self._mirror, samples)
        self._side = 1 - self._side
        for mine, theirs in self._pairs:
            mine.side = self._side
            p, T = mine.padding, len(mine)
            rows = slice(-p, T + p) if p else slice(None)
            np.copyto(np.asarray(mine[rows]), np.asarray(theirs[rows]))
        mirror: Samples = self._mirror
        return mirror


def mirror_of(samples: Samples) -> Samples:
    """Allocate a switching buffer in managed memory for batches like `samples`, in one arena.

    Fields that are one array there are one array here.
    """
    sources = {_identity(leaf): leaf for _, leaf in buffer_leaves(samples)}
    size = 0
    for leaf in sources.values():
        rows = len(leaf) + 2 * getattr(leaf, "padding", 0)
        size += aligned(
            2 * rows * int(np.prod(leaf.shape[1:], dtype=np.int64)) * leaf.dtype.itemsize
        )
    arena = Arena(size, "managed")
    mirrors: dict[Any, Array] = {}
    for identity, leaf in sources.items():
        padding = getattr(leaf, "padding", 0)
        cls = SwitchingRotatingManagedMemoryArray if padding else SwitchingManagedMemoryArray
        mirrors[identity] = cls(leaf.shape, leaf.dtype, padding=padding, arena=arena)
    mirrored: Samples = buffer_map(lambda leaf: mirrors[_identity(leaf)], samples)
    return mirrored


def _pairs_of(mirror: Samples, samples: Samples) -> list[tuple[Any, Any]]:
    """Pair arrays with what is to be copied into them, each once."""
    pairs = zip(buffer_leaves(mirror), buffer_leaves(samples), strict=True)
    return list({mine.block.key: (mine, theirs) for (_, mine), (_, theirs) in pairs}.values())


def _identity(leaf: Any) -> Any:
    """Return the same for leaves that are one array."""
    return leaf.block.key if isinstance(leaf, Array) and not leaf.is_view else (id(leaf),)
