"""Where the batches of a sampler go, so that one can be read while the next is made.

    in place   the sampler's own buffer switches: nothing is copied, it binds everything anew each batch
    Copies     any other sampler: each finished batch is copied into a side of a second buffer

Binding makes some thousand views, copying moves the batch once: it is cheaper up to some 30 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


class Side(NamedTuple):
    """Where a batch is.

    Attributes:
        samples: whole switching arrays, on the side where it is.
        rows: how many of their rows it is; None for all.
    """

    samples: Samples
    rows: int | None

    def batch(self) -> Samples:
        """Return the batch itself."""
        batch: Samples = self.samples if self.rows is None else self.samples[: self.rows]
        return batch


def sides_of(sampler: Sampler) -> Callable[[Samples], Side]:
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
    return lambda batch: Side(sampler.samples, _rows_left(batch, sampler.samples))


def _rows_left(batch: Samples, whole: Samples) -> int | None:
    """Return how many rows a batch has, None if it is as long as the whole."""
    n = len(batch.env.done)
    return None if n == len(whole.env.done) else n


class Copies:
    """Copy finished batches, padding included, into the sides of a buffer of our own."""

    def __init__(self) -> None:
        self._mirror: Any = None
        self._pairs: list[tuple[Any, Any]] = []
        self._source: Any = None
        self._side = 0

    def take(self, batch: Samples) -> Side:
        """Copy the batch to the other side than the last one.

        Raises:
            ValueError: if it has more rows than the first, or other columns or fields.
        """
        if self._mirror is None:
            self._mirror = mirror_of(batch)
        if batch is not self._source:
            self._source, self._pairs = batch, _pairs_of(self._mirror, batch)
        self._side = 1 - self._side
        for mine, theirs in self._pairs:
            mine.side = self._side
            p, n = theirs.padding, len(theirs)
            rows = slice(-p, n + p) if p else slice(0, n)
            np.copyto(np.asarray(mine[rows]), np.asarray(theirs[rows]))
        return Side(self._mirror, _rows_left(batch, self._mirror))


def mirror_of(samples: Samples) -> Samples:
    """Allocate a switching buffer in managed memory for batches like `samples`, in one arena.

    Fields that are one array there are one array here. Of some rows of a buffer all are mirrored.
    """
    n_rows = len(samples.env.done)
    sources = {_identity(leaf): leaf for _, leaf in buffer_leaves(samples)}
    sizes = {identity: _rows_of(leaf, n_rows) for identity, leaf in sources.items()}
    size = 0
    for identity, leaf in sources.items():
        rows, padding = sizes[identity]
        cells = int(np.prod(leaf.shape[1:], dtype=np.int64))
        size += aligned(2 * (rows + 2 * padding) * cells * leaf.dtype.itemsize)
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
    """Return rows and padding of what a leaf is mirrored by: those of its array, if it is some rows of it."""
    if isinstance(leaf, Array) and leaf.is_view and len(leaf) == n_rows:
        return max(leaf.block.length, n_rows), leaf.block.padding
    return len(leaf), getattr(leaf, "padding", 0)


def _pairs_of(mirror: Samples, samples: Samples) -> list[tuple[Any, Any]]:
    """Pair arrays with what is to be copied into them, each once."""
    pairs = list(zip(buffer_leaves(mirror), buffer_leaves(samples), strict=True))
    for (path, mine), (_, theirs) in pairs:
        if len(theirs) > len(mine) or theirs.shape[1:] != mine.shape[1:]:
            raise ValueError(
                f"{path}: expected at most {len(mine)} rows of {mine.shape[1:]} as in the first batch, got "
                f"{theirs.shape}"
            )
    return list({mine.block.key: (mine, theirs) for (_, mine), (_, theirs) in pairs}.values())


def _identity(leaf: Any) -> Any:
    """Return the same for leaves that are one array."""
    return leaf.block.key if isinstance(leaf, Array) and not leaf.is_view else (id(leaf),)
