"""Two sides for the batches of a sampler: one stays readable while the other is written.

    in place      the sampler's own buffer switches sides; nothing is copied
    BatchCopies   for any other sampler: each finished batch is copied to a side of a second buffer

    side         0         1         0         1
    written      batch 0   batch 1   batch 2   batch 3      here, while the previous batch is read
    read                   batch 0   batch 1   batch 2      by the learning process

Working in place requires switching arrays, made by `allocate_samples(switching=True)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from parllel.arrays.arena import Arena, aligned
from parllel.arrays.array import Array
from parllel.arrays.switching import (
    SwitchingArray,
    SwitchingManagedMemoryArray,
    SwitchingRotatingManagedMemoryArray,
)
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_leaves, buffer_map
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.sampler import Sampler


class BatchSide(NamedTuple):
    """Where a batch is stored: a side of a switching buffer, and the number of rows.

    Attributes:
        samples: switching arrays, set to the side of the batch.
        rows: number of rows of the batch; None for all.
    """

    samples: Samples
    rows: int | None

    def batch(self) -> Samples:
        """Return the batch: the whole buffer, or its first rows."""
        batch: Samples = self.samples if self.rows is None else self.samples[: self.rows]
        return batch


def sides_of(sampler: Sampler) -> Callable[[Samples], BatchSide]:
    """Return a function that takes a finished batch and returns its BatchSide.

    Raises:
        ValueError: if only some arrays of the sampler's buffer switch, or if the buffer switches
            but the sampler is not a BatchSampler. Only a BatchSampler switches its parts along with
            the buffer.
    """
    samples = getattr(sampler, "samples", None)  # a Sampler need not have a buffer
    switching = [isinstance(array, SwitchingArray) for array in buffer_arrays(samples)]
    if not any(switching):
        return BatchCopies().take
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
    # The whole buffer with a number of rows, not a slice: a slice is pickled leaf by leaf, a whole buffer as
    # its name and side.
    return lambda batch: BatchSide(sampler.samples, _rows_left(batch, sampler.samples))


def _rows_left(batch: Samples, whole: Samples) -> int | None:
    """Return the number of rows of a batch, or None if it fills the whole buffer."""
    n = len(batch.env.done)
    return None if n == len(whole.env.done) else n


class BatchCopies:
    """Copies finished batches, including padding, alternately to the two sides of a second buffer."""

    def __init__(self) -> None:
        self._mirror: Any = None
        self._pairs: list[tuple[Any, Any]] = []
        self._source: Any = None
        self._side = 0

    def take(self, batch: Samples) -> BatchSide:
        """Copy a batch to the side that does not hold the previous batch.

        Raises:
            ValueError: if the batch has more rows than the first one, or different columns or fields.
        """
        if self._mirror is None:
            self._mirror = mirror_of(batch)
        # Samplers usually return the same object each time, so arrays are paired only once.
        if batch is not self._source:
            self._source, self._pairs = batch, _pairs_of(self._mirror, batch)
        # The learner reads the previous side until it requests the next batch.
        self._side = 1 - self._side
        for mine, theirs in self._pairs:
            mine.side = self._side
            p, n = theirs.padding, len(theirs)
            # Including the padding, which holds the rows before and after the batch.
            rows = slice(-p, n + p) if p else slice(0, n)
            np.copyto(np.asarray(mine[rows]), np.asarray(theirs[rows]))
        return BatchSide(self._mirror, _rows_left(batch, self._mirror))


def mirror_of(samples: Samples) -> Samples:
    """Allocate a switching buffer like `samples`, in a single arena of managed memory.

    Fields that share an array also share one in the new buffer. If `samples` is a slice of rows,
    the new buffer has room for all rows of the sliced buffer, since later batches may be longer.
    """
    n_rows = len(samples.env.done)
    sources = {_identity(leaf): leaf for _, leaf in buffer_leaves(samples)}
    sizes = {identity: _rows_of(leaf, n_rows) for identity, leaf in sources.items()}
    size = 0
    for identity, leaf in sources.items():
        rows, padding = sizes[identity]
        cells = int(np.prod(leaf.shape[1:], dtype=np.int64))
        # Two sides, each padded at both ends.
        size += aligned(2 * (rows + 2 * padding) * cells * leaf.dtype.itemsize)
    # Managed storage can be sent to a running process; a single arena needs a single descriptor.
    arena = Arena(size, "managed")
    mirrors: dict[Any, Array] = {}
    for identity, leaf in sources.items():
        rows, padding = sizes[identity]
        cls = SwitchingRotatingManagedMemoryArray if padding else SwitchingManagedMemoryArray
        mirrors[identity] = cls((rows, *leaf.shape[1:]), leaf.dtype, padding=padding, arena=arena)
        mirrors[identity].block.writer = leaf.block.writer if isinstance(leaf, Array) else ""
    mirrored: Samples = buffer_map(lambda leaf: mirrors[_identity(leaf)], samples)
    return mirrored


def _rows_of(leaf: Any, n_rows: int) -> tuple[int, int]:
    """Return the rows and padding for a leaf's copy: those of the whole array if the leaf is a slice."""
    if isinstance(leaf, Array) and leaf.is_view and len(leaf) == n_rows:
        return max(leaf.block.length, n_rows), leaf.block.padding
    return len(leaf), getattr(leaf, "padding", 0)


def _pairs_of(mirror: Samples, samples: Samples) -> list[tuple[Any, Any]]:
    """Return pairs of destination and source array, without duplicates."""
    pairs = list(zip(buffer_leaves(mirror), buffer_leaves(samples), strict=True))
    for (path, mine), (_, theirs) in pairs:
        if len(theirs) > len(mine) or theirs.shape[1:] != mine.shape[1:]:
            raise ValueError(
                f"{path}: expected at most {len(mine)} rows of {mine.shape[1:]} as in the first batch, got "
                f"{theirs.shape}"
            )
    return list({mine.block.key: (mine, theirs) for (_, mine), (_, theirs) in pairs}.values())


def _identity(leaf: Any) -> Any:
    """Return a key that is equal for leaves that share an array."""
    return leaf.block.key if isinstance(leaf, Array) and not leaf.is_view else (id(leaf),)
